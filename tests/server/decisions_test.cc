#include "server/jobs/decisions.h"

#include <signal.h>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/status_proto.h"
#include "server/store/job_state.h"

namespace penstock::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(JobStateTest, AnEndedJobMovesOnlyWhenItIsResumed) {
  for (const auto from : {v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_FAILED, v1::JOB_STATE_CANCELLED}) {
    EXPECT_TRUE(IsFinal(from));
    for (int i = 0; i <= v1::JOB_STATE_CANCELLED; ++i) {
      const auto to = static_cast<v1::JobState>(i);
      const bool resumed = from != v1::JOB_STATE_SUCCEEDED && to == v1::JOB_STATE_QUEUED;
      EXPECT_EQ(CanMove(from, to), resumed) << from << " " << to;
    }
  }
}

TEST(JobStateTest, MovesAreThoseOfTheDrawing) {
  using enum v1::JobState;
  const std::vector<std::pair<v1::JobState, std::vector<v1::JobState>>> moves = {
      {JOB_STATE_QUEUED, {JOB_STATE_STARTING, JOB_STATE_CANCELLED, JOB_STATE_FAILED}},
      {JOB_STATE_STARTING,
       {JOB_STATE_RUNNING, JOB_STATE_CANCELLING, JOB_STATE_QUEUED, JOB_STATE_SUCCEEDED,
        JOB_STATE_FAILED}},
      {JOB_STATE_RUNNING,
       {JOB_STATE_CANCELLING, JOB_STATE_QUEUED, JOB_STATE_SUCCEEDED, JOB_STATE_FAILED}},
      {JOB_STATE_CANCELLING, {JOB_STATE_CANCELLED, JOB_STATE_SUCCEEDED, JOB_STATE_FAILED}}};
  for (const auto& [from, allowed] : moves) {
    for (int i = 0; i <= JOB_STATE_CANCELLED; ++i) {
      const auto to = static_cast<v1::JobState>(i);
      const bool expected = std::find(allowed.begin(), allowed.end(), to) != allowed.end();
      EXPECT_EQ(CanMove(from, to), expected) << StateName(from) << " " << StateName(to);
    }
  }
}

ScheduleSnapshot OneDevice() {
  ScheduleSnapshot snapshot;
  snapshot.devices = {{.id = "cpu"}};
  snapshot.host_memory_bytes = 10 * kGiB;
  return snapshot;
}

TEST(ScheduleTest, StartsTheOldestAndSaysWhatTheOthersWaitFor) {
  ScheduleSnapshot snapshot = OneDevice();
  snapshot.queued = {{.name = "jobs/aaaa", .host_bytes = kGiB},
                     {.name = "jobs/bbbb", .host_bytes = kGiB}};
  const ScheduleDecision decision = Schedule(snapshot);
  EXPECT_THAT(decision.starts, ElementsAre(Start{"jobs/aaaa", "cpu"}));
  ASSERT_EQ(decision.waits.size(), 1u);
  EXPECT_EQ(decision.waits[0].name, "jobs/bbbb");
  EXPECT_EQ(decision.waits[0].reason, v1::STATE_REASON_DEVICE_BUSY);
  EXPECT_THAT(decision.waits[0].message, HasSubstr("jobs/aaaa"));
}

TEST(ScheduleTest, AJobThatWaitsForMemoryHoldsBackLaterOnes) {
  ScheduleSnapshot snapshot = OneDevice();
  snapshot.devices = {{.id = "cpu0"}, {.id = "cpu1"}, {.id = "cpu2"}};
  snapshot.running = {{.name = "jobs/rrrr", .device = "cpu0", .host_bytes = 6 * kGiB}};
  snapshot.queued = {{.name = "jobs/large", .host_bytes = 5 * kGiB},
                     {.name = "jobs/small", .host_bytes = kGiB}};
  const ScheduleDecision decision = Schedule(snapshot);
  EXPECT_THAT(decision.starts, IsEmpty());
  ASSERT_EQ(decision.waits.size(), 2u);
  EXPECT_EQ(decision.waits[0].reason, v1::STATE_REASON_HOST_MEMORY);
  EXPECT_EQ(decision.waits[1].reason, v1::STATE_REASON_HOST_MEMORY);
  EXPECT_THAT(decision.waits[1].message, HasSubstr("jobs/large"));
}

TEST(ScheduleTest, AnExportNeedsNoDeviceButOnlyOneRuns) {
  ScheduleSnapshot snapshot = OneDevice();
  snapshot.running = {{.name = "jobs/train", .device = "cpu", .host_bytes = kGiB}};
  snapshot.queued = {{.name = "jobs/exp1", .lane = Lane::kExport, .host_bytes = kGiB},
                     {.name = "jobs/exp2", .lane = Lane::kExport, .host_bytes = kGiB}};
  const ScheduleDecision decision = Schedule(snapshot);
  EXPECT_THAT(decision.starts, ElementsAre(Start{"jobs/exp1", ""}));
  EXPECT_THAT(decision.waits[0].message, HasSubstr("one at a time"));
}

TEST(ScheduleTest, NothingStartsWhileDraining) {
  ScheduleSnapshot snapshot = OneDevice();
  snapshot.admission = Admission::kDraining;
  snapshot.queued = {{.name = "jobs/aaaa", .host_bytes = 1}};
  const ScheduleDecision decision = Schedule(snapshot);
  EXPECT_THAT(decision.starts, IsEmpty());
  EXPECT_EQ(decision.waits[0].reason, v1::STATE_REASON_DRAINING);
}

constexpr v1::DeviceKind kCuda = v1::DEVICE_KIND_CUDA;

// Two GPUs of different size beside the CPU.
ScheduleSnapshot TwoGpus() {
  ScheduleSnapshot snapshot = OneDevice();
  snapshot.devices.push_back({.id = "GPU-large", .kind = kCuda, .job_bytes = 80 * kGiB});
  snapshot.devices.push_back({.id = "GPU-small", .kind = kCuda, .job_bytes = 24 * kGiB});
  return snapshot;
}

QueuedJob GpuJob(const std::string& name, int64_t device_bytes, const std::string& uuid = "") {
  return {.name = name,
          .host_bytes = 1,
          .device = {.kind = kCuda, .uuid = uuid, .bytes = device_bytes}};
}

TEST(ScheduleTest, EachJobGetsTheSmallestDeviceThatIsLargeEnough) {
  ScheduleSnapshot snapshot = TwoGpus();
  snapshot.queued = {GpuJob("jobs/tiny", kGiB),
                     GpuJob("jobs/huge", 70 * kGiB),
                     {.name = "jobs/cpu", .host_bytes = 1}};
  EXPECT_THAT(Schedule(snapshot).starts,
              ElementsAre(Start{"jobs/tiny", "GPU-small"}, Start{"jobs/huge", "GPU-large"},
                          Start{"jobs/cpu", "cpu"}));
}

TEST(ScheduleTest, AJobThatWaitsForOneGpuLeavesTheOtherToLaterJobs) {
  ScheduleSnapshot snapshot = TwoGpus();
  snapshot.running = {{.name = "jobs/runs", .device = "GPU-large"}};
  snapshot.queued = {GpuJob("jobs/huge", 70 * kGiB), GpuJob("jobs/pins", 1, "GPU-large"),
                     GpuJob("jobs/tiny", kGiB)};
  const ScheduleDecision decision = Schedule(snapshot);
  EXPECT_THAT(decision.starts, ElementsAre(Start{"jobs/tiny", "GPU-small"}));
  ASSERT_EQ(decision.waits.size(), 2u);
  for (const Wait& wait : decision.waits) {
    EXPECT_EQ(wait.reason, v1::STATE_REASON_DEVICE_BUSY);
    EXPECT_THAT(wait.message, testing::AllOf(HasSubstr("GPU-large"), HasSubstr("jobs/runs")));
  }
}

TEST(ScheduleTest, Bc60NothingStartsOnADeviceThatIsNotHealthyOrFailedUnderTheJob) {
  ScheduleSnapshot snapshot = TwoGpus();
  snapshot.devices[1].health = v1::DEVICE_HEALTH_QUARANTINED;
  snapshot.devices[1].health_message = "it fell off the bus";
  QueuedJob job = GpuJob("jobs/moved", kGiB);
  job.device.failed = {"GPU-small"};
  snapshot.queued = {job};
  const ScheduleDecision decision = Schedule(snapshot);
  EXPECT_THAT(decision.starts, IsEmpty());
  EXPECT_EQ(decision.waits[0].reason, v1::STATE_REASON_DEVICE_UNAVAILABLE);
  EXPECT_THAT(decision.waits[0].message,
              testing::AllOf(HasSubstr("fell off the bus"), HasSubstr("failed under this job")));
}

TEST(ScheduleTest, SaysWhatNoDeviceHas) {
  ScheduleSnapshot snapshot = TwoGpus();
  snapshot.queued = {GpuJob("jobs/huge", 90 * kGiB), GpuJob("jobs/gone", 1, "GPU-gone")};
  const ScheduleDecision decision = Schedule(snapshot);
  EXPECT_THAT(decision.starts, IsEmpty());
  EXPECT_THAT(decision.waits[0].message, testing::AllOf(HasSubstr("80.0"), HasSubstr("90.0")));
  EXPECT_THAT(decision.waits[1].message, HasSubstr("no such device"));
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
}

TEST(AfterWorkerEndTest, DeathIsNamedAndRequeuedWhileAttemptsAreLeft) {
  WorkerEnd end = Killed(SIGSEGV);
  end.max_attempts = 2;
  const EndDecision first = AfterWorkerEnd(end);
  EXPECT_EQ(first.state, v1::JOB_STATE_QUEUED);
  EXPECT_EQ(first.reason, v1::STATE_REASON_WORKER_DIED);
  EXPECT_THAT(first.message, HasSubstr("SIGSEGV"));
  EXPECT_TRUE(first.worker_died);
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
  end.outcome = Outcome(internal::ATTEMPT_RESULT_CANCELLED);
  const EndDecision decision = AfterWorkerEnd(end);
  EXPECT_EQ(decision.state, v1::JOB_STATE_QUEUED);
  EXPECT_EQ(decision.reason, v1::STATE_REASON_WORKER_STOPPED);
  EXPECT_FALSE(decision.worker_died);
  EXPECT_EQ(decision.worker_deaths, 0);
  end.state = v1::JOB_STATE_CANCELLING;
  EXPECT_EQ(AfterWorkerEnd(end).state, v1::JOB_STATE_CANCELLED);
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
  EXPECT_FALSE(moved.worker_died);
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
      {{JOB_STATE_QUEUED, LockFacts::kFree, false, false}, ReconcileAction::kStayQueued, false},
      {{JOB_STATE_QUEUED, LockFacts::kHeldByOlderAttempt, false, false},
       ReconcileAction::kStayQueued,
       true},
      {{JOB_STATE_RUNNING, LockFacts::kHeldByThisAttempt, true, false},
       ReconcileAction::kAdopt,
       false},
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
