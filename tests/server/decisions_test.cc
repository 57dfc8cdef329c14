#include "server/jobs/decisions.h"

#include <signal.h>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/status_proto.h"
#include "server/store/job_state.h"

namespace penstock::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(JobStateTest, AnEndedJobMovesOnlyWhenItIsResumed) {
  for (const auto from : {v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_FAILED, v1::JOB_STATE_CANCELLED}) {
    EXPECT_TRUE(IsFinal(from));
    for (int i = 0; i < v1::JobState_ARRAYSIZE; ++i) {
      const auto to = static_cast<v1::JobState>(i);
      const bool resumed = from != v1::JOB_STATE_SUCCEEDED && to == v1::JOB_STATE_QUEUED;
      EXPECT_EQ(CanMove(from, to), resumed) << from << " " << to;
    }
  }
}

TEST(JobStateTest, MovesAreThoseOfTheTable) {
  using enum v1::JobState;
  const std::vector<v1::JobState> from_running = {JOB_STATE_CANCELLING, JOB_STATE_PAUSING,
                                                  JOB_STATE_YIELDING,   JOB_STATE_QUEUED,
                                                  JOB_STATE_SUCCEEDED,  JOB_STATE_FAILED};
  std::vector<v1::JobState> from_starting = from_running;
  from_starting.push_back(JOB_STATE_RUNNING);
  const std::vector<std::pair<v1::JobState, std::vector<v1::JobState>>> moves = {
      {JOB_STATE_QUEUED,
       {JOB_STATE_STARTING, JOB_STATE_PAUSED, JOB_STATE_CANCELLED, JOB_STATE_FAILED}},
      {JOB_STATE_STARTING, from_starting},
      {JOB_STATE_RUNNING, from_running},
      {JOB_STATE_CANCELLING, {JOB_STATE_CANCELLED, JOB_STATE_SUCCEEDED, JOB_STATE_FAILED}},
      {JOB_STATE_PAUSING,
       {JOB_STATE_PAUSED, JOB_STATE_CANCELLING, JOB_STATE_SUCCEEDED, JOB_STATE_FAILED}},
      {JOB_STATE_YIELDING,
       {JOB_STATE_QUEUED, JOB_STATE_PAUSING, JOB_STATE_CANCELLING, JOB_STATE_SUCCEEDED,
        JOB_STATE_FAILED}},
      {JOB_STATE_PAUSED, {JOB_STATE_QUEUED, JOB_STATE_CANCELLED, JOB_STATE_FAILED}}};
  for (const auto& [from, allowed] : moves) {
    for (int i = 0; i < v1::JobState_ARRAYSIZE; ++i) {
      const auto to = static_cast<v1::JobState>(i);
      const bool expected = std::find(allowed.begin(), allowed.end(), to) != allowed.end();
      EXPECT_EQ(CanMove(from, to), expected) << StateName(from) << " " << StateName(to);
    }
    EXPECT_FALSE(IsFinal(from));
    EXPECT_EQ(HasWorker(from), from != JOB_STATE_QUEUED && from != JOB_STATE_PAUSED);
  }
}

WorkerEnd Killed(int signal) {
  WorkerEnd end;
  end.exit = {.kind = ExitKind::kSignalled, .code = signal};
  return end;
}

internal::AttemptOutcome Outcome(internal::AttemptResult result) {
  internal::AttemptOutcome outcome;
  outcome.set_result(result);
  return outcome;
}

TEST(AfterWorkerEndTest, AnOutcomeDecidesWhateverTheExitWas) {
  WorkerEnd end = Killed(SIGKILL);
  end.outcome = Outcome(internal::ATTEMPT_RESULT_SUCCEEDED);
  EXPECT_EQ(AfterWorkerEnd(end).state, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(AfterWorkerEnd(end).reason, v1::STATE_REASON_UNSPECIFIED);
}

TEST(AfterWorkerEndTest, ARunThatStoppedEarlyHasSucceededAndSaysWhy) {
  WorkerEnd end = Killed(SIGKILL);
  end.outcome = Outcome(internal::ATTEMPT_RESULT_SUCCEEDED);
  end.outcome->set_early_stop("stopped early: no better");
  const EndDecision decision = AfterWorkerEnd(end);
  EXPECT_EQ(decision.state, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(decision.reason, v1::STATE_REASON_EARLY_STOPPING);
  EXPECT_EQ(decision.message, "stopped early: no better");
}

TEST(AfterWorkerEndTest, DeathIsNamedAndRequeuedWhileAttemptsAreLeft) {
  WorkerEnd end = Killed(SIGSEGV);
  end.max_attempts = 2;
  const EndDecision first = AfterWorkerEnd(end);
  EXPECT_EQ(first.state, v1::JOB_STATE_QUEUED);
  EXPECT_EQ(first.reason, v1::STATE_REASON_WORKER_DIED);
  EXPECT_THAT(first.message, HasSubstr("SIGSEGV"));
  EXPECT_EQ(first.death_cause, "worker killed by SIGSEGV (Segmentation fault)");
  end.worker_deaths = 1;
  const EndDecision second = AfterWorkerEnd(end);
  EXPECT_EQ(second.state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(second.failure_class, v1::FAILURE_CLASS_SERVER);
}

TEST(AfterWorkerEndTest, ExitCodeZeroWithoutOutcomeIsAFailure) {
  WorkerEnd end;
  end.exit = {.kind = ExitKind::kExited, .code = 0};
  EXPECT_EQ(AfterWorkerEnd(end).state, v1::JOB_STATE_FAILED);
}

TEST(AfterWorkerEndTest, DeathWhileCancellingIsCancelled) {
  WorkerEnd end = Killed(SIGABRT);
  end.state = v1::JOB_STATE_CANCELLING;
  end.max_attempts = 5;
  EXPECT_EQ(AfterWorkerEnd(end).state, v1::JOB_STATE_CANCELLED);
}

TEST(AfterWorkerEndTest, ANewCheckpointStartsTheCountAgain) {
  WorkerEnd end = Killed(SIGSEGV);
  end.max_attempts = 2;
  end.worker_deaths = 1;
  end.saved_checkpoint = true;
  const EndDecision decision = AfterWorkerEnd(end);
  EXPECT_EQ(decision.state, v1::JOB_STATE_QUEUED);
  EXPECT_EQ(decision.worker_deaths, 1);
}

TEST(AfterWorkerEndTest, TheSameDeathAtTheSameStepEndsTheJob) {
  WorkerEnd end = Killed(SIGSEGV);
  end.max_attempts = 10;
  end.step = 7;
  end.last_death.set_attempt(1);
  end.last_death.set_step(7);
  end.last_death.set_cause(DescribeExit(end));
  end.worker_deaths = 1;
  const EndDecision same = AfterWorkerEnd(end);
  EXPECT_EQ(same.state, v1::JOB_STATE_FAILED);
  EXPECT_THAT(same.message, HasSubstr("step 7"));
  for (int difference = 0; difference < 3; ++difference) {
    WorkerEnd other = end;
    if (difference == 0) other.step = 8;
    if (difference == 1) other.saved_checkpoint = true;
    if (difference == 2) other.exit.code = SIGBUS;
    EXPECT_EQ(AfterWorkerEnd(other).state, v1::JOB_STATE_QUEUED) << difference;
  }
  // Somebody's kill -9 says nothing about the step, unless memory ran out.
  end.exit.code = SIGKILL;
  end.last_death.set_cause(DescribeExit(end));
  EXPECT_EQ(AfterWorkerEnd(end).state, v1::JOB_STATE_QUEUED);
  end.out_of_memory_kill = true;
  end.last_death.set_cause(DescribeExit(end));
  EXPECT_EQ(AfterWorkerEnd(end).state, v1::JOB_STATE_FAILED);
}

TEST(AfterWorkerEndTest, AStopNobodyAskedTheDaemonForQueuesTheJobAgain) {
  WorkerEnd end;
  end.max_attempts = 1;
  end.worker_deaths = 0;
  end.outcome = Outcome(internal::ATTEMPT_RESULT_STOPPED);
  const EndDecision decision = AfterWorkerEnd(end);
  EXPECT_EQ(decision.state, v1::JOB_STATE_QUEUED);
  EXPECT_EQ(decision.reason, v1::STATE_REASON_WORKER_STOPPED);
  EXPECT_THAT(decision.death_cause, IsEmpty());
  EXPECT_EQ(decision.worker_deaths, 0);
  end.state = v1::JOB_STATE_CANCELLING;
  EXPECT_EQ(AfterWorkerEnd(end).state, v1::JOB_STATE_CANCELLED);
}

TEST(AfterWorkerEndTest, AJobThatRolledBackGoesOnAtOnce) {
  WorkerEnd end;
  end.max_attempts = 1;
  end.worker_deaths = 0;
  end.outcome = Outcome(internal::ATTEMPT_RESULT_ROLLED_BACK);
  const EndDecision decision = AfterWorkerEnd(end);
  EXPECT_EQ(decision.state, v1::JOB_STATE_QUEUED);
  EXPECT_EQ(decision.reason, v1::STATE_REASON_LOSS_SPIKE);
  EXPECT_EQ(decision.pause_seconds, 0);
  EXPECT_EQ(decision.worker_deaths, 0);
  end.state = v1::JOB_STATE_PAUSING;
  EXPECT_EQ(AfterWorkerEnd(end).state, v1::JOB_STATE_PAUSED);
}

TEST(AfterWorkerEndTest, AKillForMemoryIsHinted) {
  WorkerEnd end = Killed(SIGKILL);
  EXPECT_THAT(AfterWorkerEnd(end).message, testing::Not(HasSubstr("memory")));
  end.out_of_memory_kill = true;
  EXPECT_THAT(AfterWorkerEnd(end).message, HasSubstr("memory"));
}

WorkerEnd DeviceFailed(const std::string& fault) {
  WorkerEnd end;
  end.device = "GPU-b";
  end.outcome = Outcome(internal::ATTEMPT_RESULT_FAILED);
  *end.outcome->mutable_error() = ToStatusProto(
      Error(absl::StatusCode::kUnavailable, reason::kDeviceFailed, "broken", {{"fault", fault}}));
  return end;
}

TEST(AfterWorkerEndTest, Bc60ADeviceFailureMovesTheJobOnceAndIsNoDeath) {
  WorkerEnd end = DeviceFailed("hardware");
  end.has_other_device = true;
  const EndDecision moved = AfterWorkerEnd(end);
  EXPECT_EQ(moved.state, v1::JOB_STATE_QUEUED);
  EXPECT_EQ(moved.reason, v1::STATE_REASON_DEVICE_FAILED);
  EXPECT_EQ(moved.quarantine, "broken");
  EXPECT_TRUE(moved.device_failed);
  EXPECT_THAT(moved.death_cause, IsEmpty());
  end.failed_devices = {"GPU-a"};
  const EndDecision again = AfterWorkerEnd(end);
  EXPECT_EQ(again.state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(again.failure_class, v1::FAILURE_CLASS_RESOURCE);
  EXPECT_EQ(again.quarantine, "broken") << "no program breaks hardware";
  end = DeviceFailed("hardware");
  EXPECT_EQ(AfterWorkerEnd(end).state, v1::JOB_STATE_FAILED) << "nowhere to go";
  end.state = v1::JOB_STATE_CANCELLING;
  end.has_other_device = true;
  EXPECT_EQ(AfterWorkerEnd(end).state, v1::JOB_STATE_CANCELLED);
}

TEST(AfterWorkerEndTest, TheSameFaultOnASecondDeviceIsTheProgramsAndSparesTheDevice) {
  WorkerEnd end = DeviceFailed("program");
  end.has_other_device = true;
  EXPECT_EQ(AfterWorkerEnd(end).quarantine, "broken");
  end.failed_devices = {"GPU-a"};
  const EndDecision again = AfterWorkerEnd(end);
  EXPECT_EQ(again.state, v1::JOB_STATE_FAILED);
  EXPECT_THAT(again.quarantine, IsEmpty());
  EXPECT_EQ(again.failure_class, v1::FAILURE_CLASS_SERVER);
}

WorkerEnd Stopped(v1::JobState state, v1::StateReason reason) {
  WorkerEnd end;
  end.state = state;
  end.state_reason = reason;
  end.state_message = "why";
  end.outcome = Outcome(internal::ATTEMPT_RESULT_STOPPED);
  return end;
}

TEST(AfterWorkerEndTest, AStoppedWorkerLeavesItsJobWhereTheStopWasToBringIt) {
  using enum v1::JobState;
  struct Case {
    v1::JobState state;
    v1::StateReason reason;
    v1::JobState after;
  };
  for (const Case& one : {
           Case{JOB_STATE_PAUSING, v1::STATE_REASON_PAUSE_REQUESTED, JOB_STATE_PAUSED},
           Case{JOB_STATE_YIELDING, v1::STATE_REASON_PREEMPTED, JOB_STATE_QUEUED},
           Case{JOB_STATE_YIELDING, v1::STATE_REASON_DAEMON_STOPPED, JOB_STATE_QUEUED},
           Case{JOB_STATE_CANCELLING, v1::STATE_REASON_CANCEL_REQUESTED, JOB_STATE_CANCELLED},
           Case{JOB_STATE_CANCELLING, v1::STATE_REASON_TIME_LIMIT, JOB_STATE_FAILED},
       }) {
    WorkerEnd end = Stopped(one.state, one.reason);
    end.worker_deaths = 1;
    const EndDecision decision = AfterWorkerEnd(end);
    EXPECT_EQ(decision.state, one.after) << StateName(one.state);
    EXPECT_EQ(decision.reason, one.reason) << StateName(one.state);
    EXPECT_THAT(decision.death_cause, IsEmpty());
    EXPECT_EQ(decision.worker_deaths, 1);
    EXPECT_EQ(decision.pause_seconds, 0);
    EXPECT_EQ(decision.error.code() != 0, one.after == JOB_STATE_FAILED);

    end.outcome = Outcome(internal::ATTEMPT_RESULT_SUCCEEDED);
    EXPECT_EQ(AfterWorkerEnd(end).state, JOB_STATE_SUCCEEDED) << "it was done before it heard";

    end.outcome.reset();
    end.exit = {.kind = ExitKind::kSignalled, .code = SIGKILL};
    end.kill_cause = KillCause::kGrace;
    end.kill_seconds = 60;
    const EndDecision late = AfterWorkerEnd(end);
    EXPECT_EQ(late.state, one.after) << "no death: it goes where it was to go";
    EXPECT_THAT(late.message, testing::AllOf(HasSubstr("60 s"), HasSubstr("checkpoint")));
    EXPECT_THAT(late.death_cause, IsEmpty());
  }
}

TEST(AfterWorkerEndTest, AJobThatShallPausePausesWhateverEndsItsWorker) {
  WorkerEnd end = Killed(SIGSEGV);
  end.state = v1::JOB_STATE_PAUSING;
  end.max_attempts = 3;
  const EndDecision died = AfterWorkerEnd(end);
  EXPECT_EQ(died.state, v1::JOB_STATE_PAUSED);
  EXPECT_EQ(died.worker_deaths, 1);
  end.max_attempts = 1;
  EXPECT_EQ(AfterWorkerEnd(end).state, v1::JOB_STATE_FAILED);
}

TEST(AfterWorkerEndTest, WhatTheSystemRefusesIsTriedAgainAndNotTwiceTheSame) {
  for (const auto reason : {reason::kIoError, reason::kDiskInsufficient}) {
    WorkerEnd end;
    end.max_attempts = 5;
    end.step = 9;
    end.outcome = Outcome(internal::ATTEMPT_RESULT_FAILED);
    *end.outcome->mutable_error() =
        ToStatusProto(Error(absl::StatusCode::kUnavailable, reason, "disk says no"));
    const EndDecision first = AfterWorkerEnd(end);
    EXPECT_EQ(first.state, v1::JOB_STATE_QUEUED);
    EXPECT_EQ(first.death_cause, "disk says no");
    end.worker_deaths = 1;
    end.last_death.set_attempt(1);
    end.last_death.set_step(9);
    end.last_death.set_cause(first.death_cause);
    const EndDecision second = AfterWorkerEnd(end);
    EXPECT_EQ(second.state, v1::JOB_STATE_FAILED);
    EXPECT_EQ(second.failure_class, v1::FAILURE_CLASS_RESOURCE);
    end.step = 10;
    EXPECT_EQ(AfterWorkerEnd(end).state, v1::JOB_STATE_QUEUED) << "another step";
    end.state = v1::JOB_STATE_CANCELLING;
    EXPECT_EQ(AfterWorkerEnd(end).state, v1::JOB_STATE_FAILED) << "its last steps are not saved";
  }
}

TEST(AfterWorkerEndTest, AttemptsAfterTheFirstWaitLongerEachTime) {
  EXPECT_EQ(RetryPauseSeconds(1), 0);
  EXPECT_EQ(RetryPauseSeconds(2), 5);
  EXPECT_EQ(RetryPauseSeconds(3), 10);
  EXPECT_EQ(RetryPauseSeconds(100), 300);
  WorkerEnd end = Killed(SIGKILL);
  end.max_attempts = 9;
  EXPECT_EQ(AfterWorkerEnd(end).pause_seconds, 0);
  end.worker_deaths = 2;
  EXPECT_EQ(AfterWorkerEnd(end).pause_seconds, 10);
  end.saved_checkpoint = true;
  EXPECT_EQ(AfterWorkerEnd(end).pause_seconds, 0);
}

TEST(AfterWorkerEndTest, AStuckWorkerIsADeathOfItsOwnDoing) {
  WorkerEnd end = Killed(SIGKILL);
  end.kill_cause = KillCause::kStuck;
  end.kill_seconds = 1800;
  end.max_attempts = 9;
  end.step = 4;
  const EndDecision first = AfterWorkerEnd(end);
  EXPECT_EQ(first.state, v1::JOB_STATE_QUEUED);
  EXPECT_THAT(first.message, HasSubstr("1800 s"));
  end.last_death.set_attempt(1);
  end.last_death.set_step(4);
  end.last_death.set_cause(first.death_cause);
  EXPECT_EQ(AfterWorkerEnd(end).state, v1::JOB_STATE_FAILED);
}

TEST(StuckTest, GivesEveryJobFarMoreThanItNeeds) {
  EXPECT_EQ(StuckAfterSeconds({}), 7200) << "nothing is known yet";
  EXPECT_EQ(StuckAfterSeconds({.predicted_step_seconds = 0.2, .has_step = true}), 1800);
  EXPECT_EQ(StuckAfterSeconds({.predicted_step_seconds = 120, .has_step = true}), 12'000);
  EXPECT_EQ(
      StuckAfterSeconds({.predicted_step_seconds = 1, .longest_seconds = 40, .has_step = true}),
      4000);
}

TEST(ClassifyFailureTest, GoesByReasonThenByCode) {
  const auto classify = [](absl::StatusCode code, std::string_view reason) {
    return ClassifyFailure(ToStatusProto(Error(code, reason, "x")));
  };
  using absl::StatusCode;
  EXPECT_EQ(classify(StatusCode::kInvalidArgument, reason::kDataInvalid), v1::FAILURE_CLASS_DATA);
  EXPECT_EQ(classify(StatusCode::kInvalidArgument, reason::kSpecInvalid), v1::FAILURE_CLASS_USER);
  EXPECT_EQ(classify(StatusCode::kResourceExhausted, reason::kDiskInsufficient),
            v1::FAILURE_CLASS_RESOURCE);
  EXPECT_EQ(classify(StatusCode::kInternal, reason::kInternal), v1::FAILURE_CLASS_SERVER);
}

TEST(ReconcileTest, EveryUnfinishedJobGetsATrueState) {
  struct Case {
    ReconcileSnapshot snapshot;
    ReconcileAction action;
    bool kill_holder;
  };
  using enum v1::JobState;
  const Case cases[] = {
      {{JOB_STATE_QUEUED, LockFacts::kFree, false, false}, ReconcileAction::kStay, false},
      {{JOB_STATE_QUEUED, LockFacts::kHeldByOlderAttempt, false, false},
       ReconcileAction::kStay,
       true},
      {{JOB_STATE_RUNNING, LockFacts::kHeldByThisAttempt, true, false},
       ReconcileAction::kAdopt,
       false},
      {{JOB_STATE_PAUSED, LockFacts::kFree, true, true}, ReconcileAction::kStay, false},
      {{JOB_STATE_PAUSED, LockFacts::kHeldByOlderAttempt, false, false},
       ReconcileAction::kStay,
       true},
      {{JOB_STATE_YIELDING, LockFacts::kHeldByThisAttempt, true, false},
       ReconcileAction::kAdopt,
       false},
      {{JOB_STATE_PAUSING, LockFacts::kFree, false, false}, ReconcileAction::kNeverRan, false},
      // It has ended its work and has not exited yet.
      {{JOB_STATE_RUNNING, LockFacts::kHeldByThisAttempt, true, true},
       ReconcileAction::kAdopt,
       false},
      {{JOB_STATE_RUNNING, LockFacts::kFree, true, false}, ReconcileAction::kEnd, false},
      {{JOB_STATE_CANCELLING, LockFacts::kFree, true, true}, ReconcileAction::kEnd, false},
      {{JOB_STATE_STARTING, LockFacts::kFree, false, false}, ReconcileAction::kNeverRan, false},
      {{JOB_STATE_STARTING, LockFacts::kHeldByOlderAttempt, false, false},
       ReconcileAction::kNeverRan,
       true},
  };
  for (const Case& one : cases) {
    const ReconcileDecision decision = Reconcile(one.snapshot);
    EXPECT_EQ(decision.action, one.action) << StateName(one.snapshot.state);
    EXPECT_EQ(decision.kill_holder, one.kill_holder) << StateName(one.snapshot.state);
  }
}

}  // namespace
}  // namespace penstock::server
