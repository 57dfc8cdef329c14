// Fair share and back-fill in a daemon with fake workers and fake GPUs.
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/job_store.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/fake_gpus.h"

namespace penstock::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class DaemonScheduleTest : public DaemonTest {
 protected:
  DaemonScheduleTest() {
    options_.fair_share_half_life_seconds = 3600;
    options_.devices = DeviceRegistry::Create(FakeRegistryOptions(std::make_shared<FakeGpus>(
        GpuInventory{.cuda_version = 13000, .cards = {MakeCard("GPU-one"), MakeCard("GPU-two")}})));
  }
  std::string Create(const Labels& labels, int64_t run_seconds = 0) {
    v1::CreateJobRequest request = MakeRequest(labels);
    request.mutable_spec()->mutable_limits()->set_run_seconds(run_seconds);
    v1::Job job;
    const grpc::Status status = client_->Create(request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job.name();
  }
  static Labels Gpu(int64_t host_bytes) {
    return {{"gpu", "1"},
            {"steps", "1000000"},
            {"step_ms", "5"},
            {"host_bytes", absl::StrCat(host_bytes)}};
  }
  v1::GetServerInfoResponse Info() {
    grpc::ClientContext context;
    v1::GetServerInfoResponse info;
    EXPECT_TRUE(client_->admin->GetServerInfo(&context, {}, &info).ok());
    return info;
  }
};

TEST_F(DaemonScheduleTest, AJobThatEndsInTimePassesOneThatWaitsForMemory) {
  Start();
  const std::string runs = Create(Gpu(kHostBytes * 8 / 10), 3600);
  client_->WaitForState(runs, v1::JOB_STATE_RUNNING);
  const std::string head = Create(Gpu(kHostBytes * 9 / 10), 3600);
  const std::string endless = Create(Gpu(kHostBytes * 2 / 10));
  const std::string longer = Create(Gpu(kHostBytes * 2 / 10), 7200);
  const std::string shorter = Create(Gpu(kHostBytes * 2 / 10), 600);
  client_->WaitForState(shorter, v1::JOB_STATE_RUNNING);

  const v1::Job first = client_->Get(head);
  EXPECT_EQ(first.queue_position(), 1);
  EXPECT_EQ(first.state_reason(), v1::STATE_REASON_HOST_MEMORY);
  EXPECT_THAT(first.state_message(),
              AllOf(HasSubstr("921.6 MiB"), HasSubstr("there is room in about"), HasSubstr(runs)));
  // With the card that is left now, these would wait for a device: the shorter one has it.
  EXPECT_EQ(client_->Get(endless).queue_position(), 2);
  EXPECT_EQ(client_->Get(longer).queue_position(), 3);
  grpc::ClientContext context;
  v1::CancelJobRequest cancel;
  cancel.set_name(shorter);
  v1::CancelJobResponse cancelled;
  ASSERT_TRUE(client_->jobs->CancelJob(&context, cancel, &cancelled).ok());
  client_->WaitForEnd(shorter);
  for (const auto& [name, why] : std::map<std::string, std::string>{
           {endless, "limits.run_seconds can say it"}, {longer, "this job may take about 2 h"}}) {
    const v1::Job job = client_->WaitFor(name, [](const v1::Job& now) {
      return now.state_reason() == v1::STATE_REASON_WOULD_DELAY;
    });
    EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
    EXPECT_THAT(job.state_message(), AllOf(HasSubstr(head), HasSubstr(why)));
  }
}

TEST_F(DaemonScheduleTest, DeviceTimeIsCountedAndSurvivesRestartsAndDeletion) {
  Start();
  // Times of attempts are whole seconds.
  const std::string job = Create({{"steps", "22"}, {"step_ms", "100"}});
  client_->WaitForState(job, v1::JOB_STATE_RUNNING);
  const v1::GetServerInfoResponse running = Info();
  ASSERT_EQ(running.users_size(), 1);
  EXPECT_EQ(running.users(0).running_jobs(), 1);
  const std::string owner = client_->WaitForEnd(job).owner();
  const double seconds = client_->Get(job).run_seconds();
  grpc::ClientContext context;
  v1::DeleteJobRequest remove;
  remove.set_name(job);
  v1::DeleteJobResponse removed;
  ASSERT_TRUE(client_->jobs->DeleteJob(&context, remove, &removed).ok());
  for (int round = 0; round < 2; ++round) {
    SCOPED_TRACE(round);
    const v1::GetServerInfoResponse info = Info();
    ASSERT_EQ(info.users_size(), 1);
    EXPECT_EQ(info.users(0).user(), owner);
    EXPECT_NEAR(info.users(0).recent_cpu_seconds(), seconds, seconds / 20);
    EXPECT_EQ(info.users(0).recent_gpu_seconds(), 0);
    EXPECT_EQ(info.users(0).running_jobs(), 0);
    Restart();
  }
}

// What other users have used comes from the store, as this client is one user only.
TEST_F(DaemonScheduleTest, WhoHasUsedLessComesFirst) {
  Start();
  const std::string runs = Create({{"steps", "1000000"}, {"step_ms", "5"}});
  client_->WaitForState(runs, v1::JOB_STATE_RUNNING);
  const std::string mine = Create({{"steps", "1"}});
  v1::Job theirs = client_->Get(mine);
  daemon_.reset();
  {
    auto store = JobStore::Open(directory_.state() + "/jobs.db");
    ASSERT_TRUE(store.ok()) << store.status();
    theirs.set_name("jobs/theirs");
    theirs.set_owner("bob");
    theirs.clear_state_reason();
    theirs.clear_state_message();
    theirs.clear_queue_position();
    ASSERT_TRUE((*store)->InsertJobs({theirs}, nullptr).ok());
  }
  Start();
  const v1::Job first = client_->Get("jobs/theirs");
  EXPECT_EQ(first.queue_position(), 1);
  const v1::Job second = client_->Get(mine);
  EXPECT_EQ(second.queue_position(), 2);
  EXPECT_THAT(second.state_message(), HasSubstr("1 newer job of bob comes first by fair share"));
  EXPECT_EQ(Info().users_size(), 2);
}

}  // namespace
}  // namespace penstock::server
