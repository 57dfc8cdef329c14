// Checkpoints of a daemon: asked for, pinned, read by exports, deleted.
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/test_support.h"

namespace penstock::server {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using Service = v1::CheckpointService::Stub;

class DaemonCheckpointsTest : public DaemonTest {
 protected:
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (Service::*method)(grpc::ClientContext*, const Request&,
                                                    Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    return (client_->checkpoints.get()->*method)(&context, request, response);
  }

  std::vector<v1::Checkpoint> List(const std::string& job) {
    v1::ListCheckpointsRequest request;
    request.set_parent(job);
    v1::ListCheckpointsResponse response;
    EXPECT_TRUE(Call(&Service::ListCheckpoints, request, &response).ok());
    return {response.checkpoints().begin(), response.checkpoints().end()};
  }
  std::vector<int64_t> Steps(const std::string& job) {
    std::vector<int64_t> steps;
    for (const v1::Checkpoint& checkpoint : List(job)) steps.push_back(checkpoint.step());
    return steps;
  }

  grpc::Status Pin(const std::string& name, bool pinned) {
    v1::PinCheckpointRequest request;
    request.set_name(name);
    request.set_pinned(pinned);
    v1::PinCheckpointResponse response;
    const grpc::Status status = Call(&Service::PinCheckpoint, request, &response);
    EXPECT_EQ(response.checkpoint().pinned(), status.ok() && pinned);
    return status;
  }
  grpc::Status Delete(const std::string& name, const std::string& request_id = "") {
    v1::DeleteCheckpointRequest request;
    request.set_name(name);
    request.set_request_id(request_id);
    v1::DeleteCheckpointResponse response;
    return Call(&Service::DeleteCheckpoint, request, &response);
  }
  grpc::Status Save(const std::string& job, v1::SaveCheckpointResponse* response) {
    v1::SaveCheckpointRequest request;
    request.set_parent(job);
    return Call(&Service::SaveCheckpoint, request, response);
  }
  grpc::Status Resume(const std::string& job, const std::string& checkpoint,
                      v1::ResumeJobResponse* response) {
    v1::ResumeJobRequest request;
    request.set_name(job);
    request.set_checkpoint(checkpoint);
    grpc::ClientContext context;
    return client_->jobs->ResumeJob(&context, request, response);
  }
  void Cancel(const std::string& job) {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    v1::CancelJobResponse response;
    request.set_name(job);
    EXPECT_TRUE(client_->jobs->CancelJob(&context, request, &response).ok());
  }
  bool OnDisk(const std::string& name) {
    return fs::exists(absl::StrCat(directory_.state(), "/", name));
  }
};

TEST_F(DaemonCheckpointsTest, PinnedOnesAreKeptAndTheOthersGoWhenAsked) {
  Start();
  const std::string job = client_->Submit({{"steps", "4"}, {"checkpoint_every", "2"}});
  client_->WaitForEnd(job);
  const std::string two = job + "/checkpoints/2";
  ASSERT_TRUE(Pin(two, true).ok());
  ASSERT_TRUE(Pin(two, true).ok()) << "again";
  Restart();
  const auto listed = List(job);
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_TRUE(listed[0].pinned());
  EXPECT_FALSE(listed[1].pinned());
  const grpc::Status refused = Delete(two);
  EXPECT_EQ(ErrorInfoOf(refused).reason(), reason::kCheckpointInUse);
  EXPECT_THAT(refused.error_message(), HasSubstr("unpin"));
  EXPECT_TRUE(OnDisk(two));
  ASSERT_TRUE(Pin(two, false).ok());
  EXPECT_TRUE(Delete(two, "once").ok());
  EXPECT_FALSE(OnDisk(two));
  EXPECT_TRUE(Delete(two, "once").ok()) << "the first reply again";
  EXPECT_EQ(ErrorInfoOf(Delete(two)).reason(), reason::kCheckpointNotFound);
  EXPECT_EQ(ErrorInfoOf(Pin(two, true)).reason(), reason::kCheckpointNotFound);
  EXPECT_THAT(Steps(job), ElementsAre(4));
  EXPECT_TRUE(Delete(job + "/checkpoints/4").ok()) << "of an ended job, the newest too";
  EXPECT_EQ(ErrorInfoOf(Delete(job + "/checkpoints/../4")).reason(), reason::kRequestInvalid);
}

TEST_F(DaemonCheckpointsTest, ARunningJobSavesWhenAskedAndKeepsItsNewest) {
  Start();
  const std::string job = client_->Submit({{"steps", "100000"}, {"step_ms", "5"}});
  client_->WaitFor(job, [](const v1::Job& now) { return now.progress().step() >= 3; });
  v1::SaveCheckpointResponse first, second;
  ASSERT_TRUE(Save(job, &first).ok());
  EXPECT_GE(first.step(), 3);
  const auto wait_for = [&](size_t count) {
    for (int i = 0; i < 3000 && List(job).size() < count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  };
  wait_for(1);
  ASSERT_TRUE(Save(job, &second).ok());
  wait_for(2);
  const std::vector<int64_t> steps = Steps(job);
  ASSERT_EQ(steps.size(), 2u) << "one a request";
  EXPECT_GE(steps[0], first.step());
  EXPECT_GE(steps[1], second.step());
  const grpc::Status refused = Delete(absl::StrCat(job, "/checkpoints/", steps[1]));
  EXPECT_EQ(ErrorInfoOf(refused).reason(), reason::kCheckpointInUse);
  EXPECT_TRUE(Delete(absl::StrCat(job, "/checkpoints/", steps[0])).ok());

  Cancel(job);
  client_->WaitForEnd(job);
  const grpc::Status ended = Save(job, &first);
  EXPECT_EQ(ErrorInfoOf(ended).reason(), reason::kJobStateConflict);
  EXPECT_THAT(ended.error_message(), HasSubstr("CANCELLED"));
  EXPECT_EQ(ErrorInfoOf(Save("jobs/nobody", &first)).reason(), reason::kJobNotFound);
}

// The export waits for memory that another job has, also across a restart.
TEST_F(DaemonCheckpointsTest, WhatAnExportWaitsForIsKeptUntilItHasEnded) {
  Start();
  const std::string job = client_->Submit({{"steps", "2"}, {"checkpoint_every", "1"}});
  client_->WaitForEnd(job);
  const std::string hog = client_->Submit(
      {{"steps", "100000"}, {"step_ms", "5"}, {"host_bytes", absl::StrCat(kHostBytes)}});
  client_->WaitForState(hog, v1::JOB_STATE_RUNNING);
  v1::ExportCheckpointRequest request;
  request.mutable_spec()->set_checkpoint(job + "/checkpoints/1");
  request.mutable_spec()->set_directory("/tmp/nowhere");
  v1::ExportCheckpointResponse response;
  ASSERT_TRUE(Call(&Service::ExportCheckpoint, request, &response).ok());
  const std::string exporting = response.job().name();
  ASSERT_EQ(client_->Get(exporting).state(), v1::JOB_STATE_QUEUED);
  Restart();
  const grpc::Status refused = Delete(job + "/checkpoints/1");
  EXPECT_EQ(ErrorInfoOf(refused).reason(), reason::kCheckpointInUse);
  EXPECT_THAT(refused.error_message(), HasSubstr(exporting));
  EXPECT_FALSE(List(job)[0].pinned());
  Cancel(exporting);
  EXPECT_TRUE(Delete(job + "/checkpoints/1").ok());
}

TEST_F(DaemonCheckpointsTest, ACancelledJobIsResumedFromTheStepThatIsNamed) {
  Start();
  const std::string job =
      client_->Submit({{"steps", "100000"}, {"step_ms", "5"}, {"checkpoint_every", "2"}});
  const auto has_saved = [&](int64_t step) {
    client_->WaitFor(job, [&](const v1::Job& now) { return now.progress().step() > step; });
  };
  has_saved(6);
  v1::ResumeJobResponse response;
  EXPECT_EQ(ErrorInfoOf(Resume(job, "", &response)).reason(), reason::kJobStateConflict);
  Cancel(job);
  client_->WaitForEnd(job);
  const std::vector<int64_t> steps = Steps(job);
  ASSERT_GE(steps.size(), 3u);
  const auto name = [&](int64_t step) { return absl::StrCat(job, "/checkpoints/", step); };
  EXPECT_EQ(ErrorInfoOf(Resume(job, name(3), &response)).reason(), reason::kCheckpointNotFound);
  EXPECT_EQ(ErrorInfoOf(Resume(job, "jobs/other/checkpoints/2", &response)).reason(),
            reason::kRequestInvalid);
  ASSERT_TRUE(Pin(name(steps.back()), true).ok());
  EXPECT_EQ(ErrorInfoOf(Resume(job, name(4), &response)).reason(), reason::kCheckpointInUse);
  EXPECT_EQ(Steps(job), steps);
  ASSERT_TRUE(Pin(name(steps.back()), false).ok());
  const grpc::Status resumed = Resume(job, name(4), &response);
  ASSERT_TRUE(resumed.ok()) << resumed.error_message();
  EXPECT_EQ(response.job().state(), v1::JOB_STATE_QUEUED);
  EXPECT_FALSE(response.job().has_end_time());
  EXPECT_TRUE(OnDisk(name(4)));
  EXPECT_TRUE(OnDisk(absl::StrCat(job, "/checkpoints/.superseded-", steps.back())));
  client_->WaitForState(job, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(client_->Get(job).attempt(), 2);
  Cancel(job);
  client_->WaitForEnd(job);

  const std::string short_job = client_->Submit({{"steps", "1"}});
  client_->WaitForEnd(short_job);
  EXPECT_EQ(ErrorInfoOf(Resume(short_job, "", &response)).reason(), reason::kJobStateConflict)
      << "it has succeeded";
  const std::string failed = client_->Submit({{"steps", "1"}, {"fail", "1"}});
  client_->WaitForEnd(failed);
  EXPECT_EQ(ErrorInfoOf(Resume(failed, "", &response)).reason(), reason::kCheckpointNotFound);
}

TEST_F(DaemonCheckpointsTest, AForkIsAJobThatReadsTheOthersCheckpointAndSaysWhatDiffers) {
  Start();
  const std::string parent = client_->Submit({{"steps", "2"}, {"checkpoint_every", "1"}});
  client_->WaitForEnd(parent);
  v1::CreateJobRequest request = MakeRequest({{"steps", "100000"}, {"step_ms", "5"}});
  request.mutable_spec()->mutable_optimizer()->set_learning_rate(0.5);
  request.mutable_spec()->set_start_checkpoint(parent + "/checkpoints/9");
  v1::Job job;
  EXPECT_EQ(ErrorInfoOf(client_->Create(request, &job)).reason(), reason::kCheckpointNotFound);
  request.mutable_spec()->set_start_checkpoint("../2");
  EXPECT_EQ(ErrorInfoOf(client_->Create(request, &job)).reason(), reason::kRequestInvalid);
  request.mutable_spec()->set_start_checkpoint(parent + "/checkpoints/2");
  request.mutable_spec()->mutable_schedule()->set_max_steps(2);
  const grpc::Status at_its_end = client_->Create(request, &job);
  EXPECT_EQ(ErrorInfoOf(at_its_end).reason(), reason::kSpecInvalid);
  EXPECT_THAT(at_its_end.error_message(), HasSubstr("nothing is left to train"));
  request.mutable_spec()->mutable_schedule()->set_max_steps(3);
  request.mutable_spec()->mutable_precision()->set_optimizer_state(v1::STATE_TYPE_INT8_BLOCKS);
  const google::rpc::ErrorInfo other_state = ErrorInfoOf(client_->Create(request, &job));
  EXPECT_EQ(other_state.reason(), reason::kCheckpointMismatch);
  EXPECT_EQ(other_state.metadata().at("found"), "STATE_TYPE_INT8_BLOCKS");
  EXPECT_EQ(other_state.metadata().at("wanted"), "STATE_TYPE_FLOAT32");
  request.mutable_spec()->mutable_precision()->set_optimizer_state(v1::STATE_TYPE_FLOAT32);
  const grpc::Status created = client_->Create(request, &job);
  ASSERT_TRUE(created.ok()) << created.error_message();
  EXPECT_THAT(job.warnings(), testing::Contains(HasSubstr("learning_rate: 0.5")));
  EXPECT_THAT(job.warnings(), testing::Each(testing::Not(HasSubstr("labels"))));
  EXPECT_EQ(ErrorInfoOf(Delete(parent + "/checkpoints/2")).reason(), reason::kCheckpointInUse);
  EXPECT_TRUE(Delete(parent + "/checkpoints/1").ok());
  Cancel(job.name());
  client_->WaitForEnd(job.name());
  EXPECT_TRUE(Delete(parent + "/checkpoints/2").ok());
}

TEST_F(DaemonCheckpointsTest, WhatACrashLeftHalfDeletedIsForgottenAndNotesOfTheEndedGo) {
  Start();
  const std::string job = client_->Submit({{"steps", "2"}, {"checkpoint_every", "1"}});
  client_->WaitForEnd(job);
  daemon_.reset();
  const std::string directory = absl::StrCat(directory_.state(), "/", job, "/checkpoints/");
  fs::rename(directory + "1", directory + ".removed-1");
  { std::ofstream note(directory + ".held-2-jobthatended"); }
  Start();
  EXPECT_THAT(Steps(job), ElementsAre(2));
  EXPECT_TRUE(Delete(job + "/checkpoints/2").ok());
}

}  // namespace
}  // namespace penstock::server
