// Workers that die, hang, cannot start, or outlive their daemon.
#include <signal.h>
#include <string.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/lock_file.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/test_support.h"
#include "tests/server/watch_summary.h"

namespace penstock::server {
namespace {

namespace fs = std::filesystem;

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST_F(DaemonTest, AWorkerKilledByAnySignalFailsItsJobWithReasonAndLogAndTheNextJobRuns) {
  Start();
  unsigned seed = 7;
  for (const int number : {SIGKILL, SIGSEGV, SIGABRT, SIGBUS}) {
    const int at = 1 + rand_r(&seed) % 20;
    const std::string name = client_->Submit(
        {{"steps", "30"}, {"crash", std::to_string(number)}, {"crash_at", std::to_string(at)}});
    const std::string next = client_->Submit({{"steps", "2"}});
    const v1::Job failed = client_->WaitForEnd(name);
    EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
    EXPECT_EQ(failed.failure_class(), v1::FAILURE_CLASS_SERVER);
    EXPECT_THAT(failed.state_message(), HasSubstr(std::string("SIG") + sigabbrev_np(number)));
    ASSERT_GT(failed.last_log_lines_size(), 0);
    EXPECT_EQ(*failed.last_log_lines().rbegin(), "about to die at step " + std::to_string(at));
    EXPECT_EQ(client_->WaitForEnd(next).state(), v1::JOB_STATE_SUCCEEDED);
  }
}

TEST_F(DaemonTest, ADeadWorkersJobIsTriedAgainWhileAttemptsAreLeft) {
  Start();
  const std::string name = client_->Submit(
      {{"steps", "4"}, {"crash_at", "3"}, {"crash_attempts", "1"}}, /*max_attempts=*/2);
  const Seen seen = Summarize(ReadAll(*client_, Watch(name)));
  EXPECT_EQ(seen.end->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(seen.end->attempt(), 2);
  EXPECT_EQ(seen.steps, (std::vector<int64_t>{1, 2, 1, 2, 3, 4}));
  grpc::ClientContext context;
  v1::ListJobMetricsRequest request;
  request.set_name(name);
  v1::ListJobMetricsResponse metrics;
  ASSERT_TRUE(client_->jobs->ListJobMetrics(&context, request, &metrics).ok());
  EXPECT_EQ(metrics.points_size(), 4);
}

TEST_F(DaemonTest, EndsWithoutResultAreFailuresToo) {
  options_.worker_silence = milliseconds(1500);
  Start();
  const v1::Job exited = client_->WaitForEnd(client_->Submit({{"exit_at", "2"}}));
  EXPECT_EQ(exited.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(exited.state_message(), HasSubstr("exited with code 0"));
  const v1::Job hung = client_->WaitForEnd(client_->Submit({{"hang_at", "2"}}));
  EXPECT_EQ(hung.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(hung.state_message(), HasSubstr("reported nothing"));
  const v1::Job failed = client_->WaitForEnd(client_->Submit({{"fail", "1"}}));
  EXPECT_EQ(failed.failure_class(), v1::FAILURE_CLASS_DATA);
  EXPECT_EQ(failed.error().message(), "row 3 is no JSON");
}

TEST_F(DaemonTest, AMissingWorkerBinaryFailsTheJobNotTheDaemon) {
  options_.worker_binary = directory_.path() + "/no-such-worker";
  Start();
  const v1::Job job = client_->WaitForEnd(client_->Submit({}));
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(job.state_message(), HasSubstr("no-such-worker"));
}

TEST_F(DaemonTest, AWorkerThatCannotBeStartedNowIsStartedLater) {
  options_.worker_start_retry = milliseconds(1000);
  Start();
  const std::string before = client_->Submit({{"steps", "1000"}, {"step_ms", "20"}});
  v1::CreateJobRequest request = MakeRequest({});
  request.set_job_id("blocked");
  v1::Job job;
  ASSERT_TRUE(client_->Create(request, &job).ok());
  // No attempt can have its directory.
  const std::string job_directory = directory_.state() + "/jobs/blocked";
  fs::create_directories(job_directory);
  std::ofstream(job_directory + "/attempts") << "in the way";
  v1::CancelJobRequest cancel;
  cancel.set_name(before);
  grpc::ClientContext context;
  v1::CancelJobResponse cancelled;
  ASSERT_TRUE(client_->jobs->CancelJob(&context, cancel, &cancelled).ok());
  const v1::Job waiting = client_->WaitFor("jobs/blocked", [](const v1::Job& seen) {
    return seen.state() == v1::JOB_STATE_QUEUED && seen.attempt() == 1;
  });
  EXPECT_EQ(waiting.state_reason(), v1::STATE_REASON_BACK_OFF);
  fs::remove(job_directory + "/attempts");
  const v1::Job end = client_->WaitForEnd("jobs/blocked");
  EXPECT_EQ(end.state(), v1::JOB_STATE_SUCCEEDED) << end.ShortDebugString();
  EXPECT_GE(end.attempt(), 2);
}

TEST_F(DaemonTest, ALivingWorkerIsAdoptedAndNothingIsLostOrDoubled) {
  Start();
  const std::string name = client_->Submit({{"steps", "60"}, {"step_ms", "20"}});
  client_->WaitFor(name, [](const v1::Job& job) { return job.progress().step() >= 5; });
  Restart();
  EXPECT_EQ(client_->Get(name).state(), v1::JOB_STATE_RUNNING);
  const Seen seen = Summarize(ReadAll(*client_, Watch(name)));
  EXPECT_EQ(seen.steps, UpTo(60));
  EXPECT_EQ(seen.end->attempt(), 1);
  EXPECT_EQ(seen.end->state(), v1::JOB_STATE_SUCCEEDED);
}

// What the daemon cannot read at a restart costs an attempt, not the job.
TEST_F(DaemonTest, AnAttemptThatCannotBeAdoptedIsEndedAndTheJobStartedLater) {
  options_.worker_start_retry = milliseconds(1000);
  Start();
  const std::string name = client_->Submit({{"steps", "250"}, {"step_ms", "20"}});
  client_->WaitFor(name, [](const v1::Job& job) { return job.progress().step() >= 5; });
  daemon_.reset();
  const std::string attempt = directory_.state() + "/" + name + "/attempts/1";
  const std::string lock = directory_.state() + "/" + name + "/worker.lock";
  ASSERT_TRUE(LockHolder(lock)->has_value());
  ASSERT_TRUE(fs::remove(attempt + "/assignment.pb"));
  fs::create_directory(attempt + "/assignment.pb");
  Start();
  const v1::Job waiting = client_->WaitForState(name, v1::JOB_STATE_QUEUED);
  EXPECT_EQ(waiting.state_reason(), v1::STATE_REASON_BACK_OFF);
  EXPECT_NE(waiting.state_message().find("cannot go on with the attempt after a restart"),
            std::string::npos)
      << waiting.state_message();
  const v1::Job end = client_->WaitForEnd(name);
  EXPECT_EQ(end.state(), v1::JOB_STATE_SUCCEEDED) << end.ShortDebugString();
  EXPECT_EQ(end.attempt(), 2);
}

TEST_F(DaemonTest, AWorkerThatDiesWhileTheDaemonIsAwayIsNoticed) {
  Start();
  const std::string name =
      client_->Submit({{"steps", "40"}, {"step_ms", "10"}, {"crash_at", "30"}});
  client_->WaitForState(name, v1::JOB_STATE_RUNNING);
  daemon_.reset();
  const std::string lock = directory_.state() + "/" + name + "/worker.lock";
  for (int i = 0; i < 3000 && LockHolder(lock)->has_value(); ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  ASSERT_FALSE(LockHolder(lock)->has_value());
  Start();
  const v1::Job job = client_->Get(name);
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_GT(job.last_log_lines_size(), 0);
}

}  // namespace
}  // namespace penstock::server
