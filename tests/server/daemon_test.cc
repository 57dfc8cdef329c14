// Jobs of a daemon: submitted, planned, listed, cancelled, deleted, exported.
#include "server/daemon.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/test_support.h"

namespace penstock::server {
namespace {

using testing::HasSubstr;

TEST_F(DaemonTest, ErrorsCarryReasonFieldAndWayOut) {
  Start();
  v1::Job job;
  v1::CreateJobRequest request;
  request.mutable_spec()->set_display_name("bad");
  grpc::Status status = client_->Create(request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kSpecInvalid);
  EXPECT_EQ(ErrorInfoOf(status).domain(), "penstock");
  EXPECT_TRUE(HasDetail<google::rpc::BadRequest>(status));

  request = MakeRequest({{"host_bytes", std::to_string(kHostBytes + 1)}});
  status = client_->Create(request, &job);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kHostMemoryInsufficient);
  EXPECT_EQ(ErrorInfoOf(status).metadata().at("limit_source"), "test");

  request = MakeRequest({});
  request.set_job_id("../../etc");
  EXPECT_EQ(ErrorInfoOf(client_->Create(request, &job)).reason(), reason::kRequestInvalid);

  grpc::ClientContext context;
  v1::GetJobRequest get;
  get.set_name("jobs/nobody");
  v1::GetJobResponse response;
  status = client_->jobs->GetJob(&context, get, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kJobNotFound);
}

TEST_F(DaemonTest, ValidateOnlyChangesNothing) {
  Start();
  v1::CreateJobRequest request = MakeRequest({});
  request.set_validate_only(true);
  v1::Job job;
  ASSERT_TRUE(client_->Create(request, &job).ok());
  EXPECT_TRUE(job.name().empty());
  EXPECT_GT(job.plan().host_peak_bytes(), 0);
  grpc::ClientContext context;
  v1::ListJobsResponse list;
  ASSERT_TRUE(client_->jobs->ListJobs(&context, {}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 0);
}

TEST_F(DaemonTest, APlanIsNoJobAndIsHeldToTheDaemonsLimitOnlyHere) {
  Start();
  const auto plan = [&](const Labels& labels, const std::string& machine, bool details,
                        v1::PlanJobResponse& response) {
    v1::PlanJobRequest request;
    *request.mutable_spec() = MakeRequest(labels).spec();
    request.set_machine(machine);
    request.set_with_program(details);
    request.set_with_trace(details);
    grpc::ClientContext context;
    return client_->jobs->PlanJob(&context, request, &response);
  };
  const Labels large = {{"host_bytes", std::to_string(2 * kHostBytes)}};
  v1::PlanJobResponse response;
  ASSERT_TRUE(plan({}, "", false, response).ok());
  EXPECT_EQ(response.plan().host_peak_bytes(), 1 << 20);
  EXPECT_TRUE(response.step_program().empty() && response.step_trace().empty());
  ASSERT_TRUE(plan({}, "", true, response).ok());
  EXPECT_EQ(response.step_program().size(), static_cast<size_t>(kFakeProgramBytes));
  EXPECT_EQ(response.step_trace(), "[]");
  // BC-01: refused with the numbers and the limit that binds.
  const google::rpc::ErrorInfo refused = ErrorInfoOf(plan(large, "", false, response));
  EXPECT_EQ(refused.reason(), reason::kHostMemoryInsufficient);
  EXPECT_EQ(refused.metadata().at("needed_bytes"), std::to_string(2 * kHostBytes));
  EXPECT_EQ(refused.metadata().at("limit_source"), "test");
  ASSERT_TRUE(plan(large, "h200-1.5tb", false, response).ok());
  EXPECT_EQ(response.warnings(0), "for h200-1.5tb");
  grpc::ClientContext context;
  v1::ListJobsResponse list;
  ASSERT_TRUE(client_->jobs->ListJobs(&context, {}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 0);
}

TEST_F(DaemonTest, APlanThatTakesLongHoldsUpNobodyElsesSubmit) {
  std::promise<void> begun, release;
  options_.planner = [&, plan = options_.planner](const v1::PlanJobRequest& request, PlanUse use) {
    // Advice takes longer than the plan, and nobody asks for it who submits.
    EXPECT_EQ(use == PlanUse::kAdvise, request.spec().labels().contains("slow"));
    if (request.spec().labels().contains("slow")) {
      begun.set_value();
      release.get_future().wait();
    }
    return plan(request, use);
  };
  Start();
  auto slow = std::async(std::launch::async, [&] {
    grpc::ClientContext context;
    v1::PlanJobRequest request;
    *request.mutable_spec() = MakeRequest({{"slow", ""}}).spec();
    v1::PlanJobResponse response;
    return client_->jobs->PlanJob(&context, request, &response);
  });
  begun.get_future().wait();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::CreateJobResponse created;
  const grpc::Status status = client_->jobs->CreateJob(&context, MakeRequest({}), &created);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(slow.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  release.set_value();
  EXPECT_TRUE(slow.get().ok());
}

TEST_F(DaemonTest, OneRequestIdMakesOneJobAlsoFromFiftyThreadsAndAcrossARestart) {
  Start();
  v1::CreateJobRequest request = MakeRequest({{"steps", "2"}});
  request.set_request_id("5f0c");
  std::vector<std::string> names(50);
  {
    std::vector<std::jthread> threads;
    for (std::string& name : names) {
      threads.emplace_back([&] {
        v1::Job job;
        const grpc::Status status = client_->Create(request, &job);
        name = status.ok() ? job.name() : status.error_message();
      });
    }
  }
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 1u) << names[0];
  client_->WaitForEnd(names[0]);
  Restart();
  v1::Job job;
  ASSERT_TRUE(client_->Create(request, &job).ok());
  EXPECT_EQ(job.name(), names[0]);
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);  // the first reply, not the state now
  request.set_job_id("another-one");
  const grpc::Status reused = client_->Create(request, &job);
  EXPECT_EQ(reused.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(ErrorInfoOf(reused).reason(), reason::kRequestIdReused);
}

TEST_F(DaemonTest, ListsComeInPagesNewestFirst) {
  Start();
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) names.push_back(client_->Submit({{"steps", "1"}}));
  for (const std::string& name : names) client_->WaitForEnd(name);
  std::vector<std::string> listed;
  v1::ListJobsRequest request;
  request.set_page_size(2);
  int pages = 0;
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse page;
    ASSERT_TRUE(client_->jobs->ListJobs(&context, request, &page).ok());
    for (const v1::Job& job : page.jobs()) listed.push_back(job.name());
    request.set_page_token(page.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  std::reverse(names.begin(), names.end());
  EXPECT_EQ(listed, names);
  EXPECT_EQ(pages, 3);

  grpc::ClientContext first, second;
  v1::ListJobsResponse page;
  request.set_page_token("");
  ASSERT_TRUE(client_->jobs->ListJobs(&first, request, &page).ok());
  request.set_page_token(page.next_page_token());
  request.add_states(v1::JOB_STATE_FAILED);
  EXPECT_EQ(client_->jobs->ListJobs(&second, request, &page).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

grpc::Status Cancel(Client& client, const std::string& name, v1::Job* job = nullptr) {
  grpc::ClientContext context;
  v1::CancelJobRequest request;
  request.set_name(name);
  v1::CancelJobResponse response;
  const grpc::Status status = client.jobs->CancelJob(&context, request, &response);
  if (job != nullptr) *job = response.job();
  return status;
}

TEST_F(DaemonTest, CancelEndsQueuedJobsAtOnceAndRunningOnesWithTheirWorker) {
  Start();
  const std::string running = client_->Submit({{"steps", "100000"}, {"step_ms", "5"}});
  client_->WaitForState(running, v1::JOB_STATE_RUNNING);
  const std::string queued = client_->Submit({});
  const v1::Job waiting = client_->Get(queued);
  EXPECT_EQ(waiting.state_reason(), v1::STATE_REASON_DEVICE_BUSY);
  EXPECT_EQ(waiting.queue_position(), 1);
  EXPECT_THAT(waiting.state_message(), HasSubstr(running));
  v1::Job job;
  ASSERT_TRUE(Cancel(*client_, queued, &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLED);
  ASSERT_TRUE(Cancel(*client_, running, &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLING);
  EXPECT_EQ(client_->WaitForEnd(running).state(), v1::JOB_STATE_CANCELLED);
  const grpc::Status again = Cancel(*client_, running);
  EXPECT_EQ(ErrorInfoOf(again).reason(), reason::kJobStateConflict);
}

TEST_F(DaemonTest, DeleteTakesEndedJobsAndTheirFilesOnly) {
  Start();
  const std::string running = client_->Submit({{"steps", "100000"}, {"step_ms", "5"}});
  client_->WaitForState(running, v1::JOB_STATE_RUNNING);
  const auto remove = [&](const std::string& name) {
    grpc::ClientContext context;
    v1::DeleteJobRequest request;
    request.set_name(name);
    v1::DeleteJobResponse response;
    return client_->jobs->DeleteJob(&context, request, &response);
  };
  EXPECT_EQ(ErrorInfoOf(remove(running)).reason(), reason::kJobStateConflict);
  ASSERT_TRUE(Cancel(*client_, running).ok());
  client_->WaitForEnd(running);
  EXPECT_EQ(access((directory_.state() + "/" + running).c_str(), F_OK), 0);
  EXPECT_TRUE(remove(running).ok());
  EXPECT_NE(access((directory_.state() + "/" + running).c_str(), F_OK), 0);
  EXPECT_EQ(ErrorInfoOf(remove(running)).reason(), reason::kJobNotFound);
}

TEST_F(DaemonTest, AFullQueueRefusesWithRetryInfo) {
  options_.max_queued_jobs = 1;
  Start();
  const std::string running = client_->Submit({{"steps", "100000"}, {"step_ms", "5"}});
  client_->WaitForState(running, v1::JOB_STATE_RUNNING);
  client_->Submit({});
  v1::Job job;
  const grpc::Status full = client_->Create(MakeRequest({}), &job);
  EXPECT_EQ(full.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ErrorInfoOf(full).reason(), reason::kQueueFull);
  EXPECT_TRUE(HasDetail<google::rpc::RetryInfo>(full));
}

TEST_F(DaemonTest, TwoUnfinishedJobsNeverShareAnOutputDirectory) {
  Start();
  v1::CreateJobRequest request = MakeRequest({{"steps", "100000"}, {"step_ms", "5"}});
  request.mutable_spec()->mutable_output()->set_directory("/tmp/shared-output");
  v1::Job first, second;
  ASSERT_TRUE(client_->Create(request, &first).ok());
  const grpc::Status refused = client_->Create(request, &second);
  EXPECT_EQ(ErrorInfoOf(refused).reason(), reason::kOutputExists);
  EXPECT_THAT(refused.error_message(), HasSubstr(first.name()));
  grpc::ClientContext context;
  v1::CancelJobRequest cancel;
  v1::CancelJobResponse cancelled;
  cancel.set_name(first.name());
  ASSERT_TRUE(client_->jobs->CancelJob(&context, cancel, &cancelled).ok());
  client_->WaitForEnd(first.name());
  EXPECT_TRUE(client_->Create(request, &second).ok());
}

TEST_F(DaemonTest, ExportIsAJobOfItsOwn) {
  Start();
  const std::string name = client_->Submit({{"steps", "2"}, {"checkpoint_every", "2"}});
  client_->WaitForEnd(name);
  v1::ExportCheckpointRequest request;
  request.mutable_spec()->set_checkpoint(name + "/checkpoints/2");
  request.mutable_spec()->set_directory("/tmp/nowhere");
  request.set_request_id("once");
  v1::ExportCheckpointResponse response, again;
  grpc::ClientContext first, second, third;
  ASSERT_TRUE(client_->checkpoints->ExportCheckpoint(&first, request, &response).ok());
  ASSERT_TRUE(client_->checkpoints->ExportCheckpoint(&second, request, &again).ok());
  EXPECT_EQ(response.job().name(), again.job().name());
  EXPECT_EQ(client_->WaitForEnd(response.job().name()).state(), v1::JOB_STATE_SUCCEEDED);
  request.clear_request_id();
  request.mutable_spec()->set_checkpoint(name + "/checkpoints/3");
  EXPECT_EQ(ErrorInfoOf(client_->checkpoints->ExportCheckpoint(&third, request, &again)).reason(),
            reason::kCheckpointNotFound);
}

}  // namespace
}  // namespace penstock::server
