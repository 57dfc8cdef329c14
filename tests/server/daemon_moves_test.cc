// Jobs that pause, yield, wait for each other and run out of time, in a daemon with fake workers.
#include <chrono>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/daemon_fixture.h"

namespace penstock::server {
namespace {

using testing::HasSubstr;

class DaemonMovesTest : public DaemonTest {
 protected:
  grpc::Status Pause(const std::string& job, v1::Job* after = nullptr,
                     const std::string& request_id = "") {
    grpc::ClientContext context;
    v1::PauseJobRequest request;
    request.set_name(job);
    request.set_request_id(request_id);
    v1::PauseJobResponse response;
    const grpc::Status status = client_->jobs->PauseJob(&context, request, &response);
    if (after != nullptr) *after = response.job();
    return status;
  }
  grpc::Status Resume(const std::string& job) {
    grpc::ClientContext context;
    v1::ResumeJobRequest request;
    request.set_name(job);
    v1::ResumeJobResponse response;
    return client_->jobs->ResumeJob(&context, request, &response);
  }
  grpc::Status Cancel(const std::string& job) {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_name(job);
    v1::CancelJobResponse response;
    return client_->jobs->CancelJob(&context, request, &response);
  }
  grpc::Status Delete(const std::string& job) {
    grpc::ClientContext context;
    v1::DeleteJobRequest request;
    request.set_name(job);
    v1::DeleteJobResponse response;
    return client_->jobs->DeleteJob(&context, request, &response);
  }
  static v1::CreateJobRequest Endless(v1::Priority priority = v1::PRIORITY_NORMAL) {
    v1::CreateJobRequest request = MakeRequest({{"steps", "1000000"}, {"step_ms", "2"}});
    request.mutable_spec()->mutable_queue()->set_priority(priority);
    request.mutable_spec()->mutable_queue()->set_max_preemptions(5);
    return request;
  }
  std::string Create(const v1::CreateJobRequest& request) {
    v1::Job job;
    const grpc::Status status = client_->Create(request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job.name();
  }
  std::string After(const std::string& parent, v1::AfterRule rule = v1::AFTER_RULE_SUCCEEDED) {
    v1::CreateJobRequest request = MakeRequest({{"steps", "1"}});
    request.mutable_spec()->mutable_queue()->add_after(parent);
    request.mutable_spec()->mutable_queue()->set_after_rule(rule);
    return Create(request);
  }
  v1::Job WaitForReason(const std::string& job, v1::StateReason reason) {
    return client_->WaitFor(job, [&](const v1::Job& now) { return now.state_reason() == reason; });
  }
};

TEST_F(DaemonMovesTest, APausedJobGivesItsDeviceBackAndGoesOnWhenAsked) {
  Start();
  const std::string job = Create(Endless());
  client_->WaitFor(job, [](const v1::Job& now) { return now.progress().step() >= 2; });
  v1::Job pausing;
  ASSERT_TRUE(Pause(job, &pausing, "once").ok());
  EXPECT_EQ(pausing.state(), v1::JOB_STATE_PAUSING);
  const v1::Job paused = client_->WaitForState(job, v1::JOB_STATE_PAUSED);
  EXPECT_EQ(paused.state_reason(), v1::STATE_REASON_PAUSE_REQUESTED);
  EXPECT_FALSE(paused.has_end_time());
  ASSERT_TRUE(Pause(job, &pausing, "once").ok());
  EXPECT_EQ(pausing.state(), v1::JOB_STATE_PAUSING) << "the first reply again";
  EXPECT_TRUE(Pause(job).ok()) << "it is paused: nothing to do";
  EXPECT_EQ(client_->WaitForEnd(client_->Submit({{"steps", "1"}})).state(),
            v1::JOB_STATE_SUCCEEDED);

  Restart();
  EXPECT_EQ(client_->Get(job).state(), v1::JOB_STATE_PAUSED);
  ASSERT_TRUE(Resume(job).ok());
  EXPECT_EQ(client_->WaitForState(job, v1::JOB_STATE_RUNNING).attempt(), 2);
  ASSERT_TRUE(Pause(job).ok());
  ASSERT_TRUE(Cancel(job).ok()) << "pausing or paused, it can be cancelled";
  EXPECT_EQ(client_->WaitForEnd(job).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(ErrorInfoOf(Pause(job)).reason(), reason::kJobStateConflict);
  EXPECT_EQ(ErrorInfoOf(Pause("jobs/nobody")).reason(), reason::kJobNotFound);
}

TEST_F(DaemonMovesTest, AQueuedJobPausesAtOnceAndKeepsItsAge) {
  Start();
  const std::string running = Create(Endless());
  const std::string first = client_->Submit({{"steps", "1"}});
  const std::string second = client_->Submit({{"steps", "1"}});
  v1::Job after;
  ASSERT_TRUE(Pause(first, &after).ok());
  EXPECT_EQ(after.state(), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(client_->Get(second).queue_position(), 1);
  ASSERT_TRUE(Resume(first).ok());
  EXPECT_EQ(client_->Get(first).queue_position(), 1);
  EXPECT_EQ(ErrorInfoOf(Resume(first)).reason(), reason::kJobStateConflict);
  ASSERT_TRUE(Pause(second).ok());
  ASSERT_TRUE(Cancel(second).ok());
  EXPECT_EQ(client_->Get(second).state(), v1::JOB_STATE_CANCELLED);
  ASSERT_TRUE(Cancel(running).ok());
  EXPECT_EQ(client_->WaitForEnd(first).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(DaemonMovesTest, AWorkerThatDoesNotStopInItsGraceIsKilledAndTheJobIsPaused) {
  Start();
  v1::CreateJobRequest request = Endless();
  (*request.mutable_spec()->mutable_labels())["deaf"] = "1";
  request.mutable_spec()->mutable_limits()->set_grace_seconds(1);
  const std::string job = Create(request);
  client_->WaitForState(job, v1::JOB_STATE_RUNNING);
  ASSERT_TRUE(Pause(job).ok());
  const v1::Job paused = client_->WaitForState(job, v1::JOB_STATE_PAUSED);
  EXPECT_THAT(paused.state_message(), HasSubstr("after 1 s"));
  EXPECT_FALSE(paused.has_last_worker_death());
}

TEST_F(DaemonMovesTest, AHigherPriorityTakesTheDeviceAndTheOtherWaitsOutAPause) {
  Start();
  const std::string low = Create(Endless(v1::PRIORITY_LOW));
  client_->WaitForState(low, v1::JOB_STATE_RUNNING);
  const std::string high = Create(Endless(v1::PRIORITY_HIGH));
  const v1::Job yielded = WaitForReason(low, v1::STATE_REASON_PREEMPTED);
  client_->WaitForState(high, v1::JOB_STATE_RUNNING);
  const v1::Job waiting = client_->WaitForState(low, v1::JOB_STATE_QUEUED);
  EXPECT_EQ(waiting.preemptions(), 1);
  EXPECT_TRUE(waiting.has_not_before());
  EXPECT_THAT(waiting.state_message(), HasSubstr(high));
  EXPECT_EQ(waiting.queue_position(), 1);
  ASSERT_TRUE(Cancel(high).ok());
  client_->WaitForEnd(high);
  EXPECT_EQ(client_->Get(low).state(), v1::JOB_STATE_QUEUED) << "its pause is not over";
  // Who may not be interrupted is not.
  v1::CreateJobRequest keeps = Endless(v1::PRIORITY_LOW);
  keeps.mutable_spec()->mutable_queue()->set_max_preemptions(0);
  const std::string kept = Create(keeps);
  client_->WaitForState(kept, v1::JOB_STATE_RUNNING);
  const std::string waits = Create(Endless(v1::PRIORITY_HIGH));
  EXPECT_EQ(client_->Get(waits).state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(client_->Get(kept).state(), v1::JOB_STATE_RUNNING);
}

TEST_F(DaemonMovesTest, JobsStartAfterTheirParentsAndGoWithThem) {
  Start();
  const std::string parent = Create(Endless());
  client_->WaitForState(parent, v1::JOB_STATE_RUNNING);
  const std::string child = After(parent);
  const std::string grandchild = After(child);
  const std::string heir = After(parent, v1::AFTER_RULE_ENDED);
  const std::string patient = After(parent, v1::AFTER_RULE_WAIT);
  const v1::Job waiting = client_->Get(child);
  EXPECT_EQ(waiting.state_reason(), v1::STATE_REASON_DEPENDENCY);
  EXPECT_THAT(waiting.state_message(), HasSubstr(parent));
  ASSERT_TRUE(Cancel(parent).ok());
  EXPECT_EQ(client_->WaitForEnd(child).state(), v1::JOB_STATE_CANCELLED);
  const v1::Job last = client_->WaitForEnd(grandchild);
  EXPECT_EQ(last.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(last.state_reason(), v1::STATE_REASON_DEPENDENCY_FAILED);
  EXPECT_THAT(last.state_message(), HasSubstr(child));
  EXPECT_EQ(client_->WaitForEnd(heir).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(client_->Get(patient).state(), v1::JOB_STATE_QUEUED);
  const grpc::Status refused = Delete(parent);
  EXPECT_EQ(ErrorInfoOf(refused).reason(), reason::kJobStateConflict);
  EXPECT_THAT(refused.error_message(), HasSubstr(patient));
  ASSERT_TRUE(Cancel(patient).ok());
  EXPECT_TRUE(Delete(parent).ok());
  EXPECT_EQ(client_->WaitForEnd(After(heir)).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(DaemonMovesTest, ParentsThatCannotBeAreNamedAtSubmit) {
  Start();
  const std::string failed = client_->Submit({{"steps", "1"}, {"fail", "1"}});
  client_->WaitForEnd(failed);
  const auto refusal = [&](const std::string& parent) {
    v1::CreateJobRequest request = MakeRequest({});
    request.mutable_spec()->mutable_queue()->add_after(parent);
    v1::Job job;
    return client_->Create(request, &job);
  };
  EXPECT_EQ(ErrorInfoOf(refusal("jobs/nobody")).reason(), reason::kJobNotFound);
  EXPECT_EQ(ErrorInfoOf(refusal("../jobs")).reason(), reason::kSpecInvalid);
  const grpc::Status status = refusal(failed);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kJobStateConflict);
  EXPECT_THAT(status.error_message(),
              testing::AllOf(HasSubstr("queue.after[0]"), HasSubstr("FAILED")));
}

TEST_F(DaemonMovesTest, AJobThatHasHadItsTimeSavesAndFailsAndCanBeResumed) {
  Start();
  v1::CreateJobRequest request = Endless();
  (*request.mutable_spec()->mutable_labels())["checkpoint_every"] = "1000";
  (*request.mutable_spec()->mutable_labels())["save_at_stop"] = "1";
  request.mutable_spec()->mutable_limits()->set_run_seconds(1);
  const std::string job = Create(request);
  const v1::Job end = client_->WaitForEnd(job);
  EXPECT_EQ(end.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(end.state_reason(), v1::STATE_REASON_TIME_LIMIT);
  EXPECT_GE(end.run_seconds(), 1);
  EXPECT_THAT(end.error().message(), HasSubstr("limits.run_seconds"));
  ASSERT_TRUE(Resume(job).ok());
  EXPECT_EQ(client_->WaitForState(job, v1::JOB_STATE_RUNNING).run_seconds(), 0);
}

TEST_F(DaemonMovesTest, AWorkerThatReportsButDoesNotGetOnIsKilled) {
  options_.stuck_after = [](const Pace& pace) { return pace.has_step ? 1 : 600; };
  Start();
  v1::CreateJobRequest request = MakeRequest({{"steps", "9"}, {"stuck_at", "3"}});
  request.mutable_spec()->mutable_limits()->set_max_attempts(9);
  const v1::Job end = client_->WaitForEnd(Create(request));
  EXPECT_EQ(end.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(end.attempt(), 2) << "the same step, the same way";
  EXPECT_THAT(end.error().message(), HasSubstr("did not get on for 1 s"));
  EXPECT_EQ(end.last_worker_death().step(), 2);
}

}  // namespace
}  // namespace penstock::server
