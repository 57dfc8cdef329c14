#include "server/jobs/schedule.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace penstock::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kGiB = int64_t{1} << 30;

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
  EXPECT_EQ(decision.waits[1].reason, v1::STATE_REASON_WOULD_DELAY);
  EXPECT_THAT(decision.waits[1].message, HasSubstr("jobs/large, which may start at any moment"));
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

TEST(ScheduleTest, NothingStartsWhileAnAdminHoldsTheQueue) {
  ScheduleSnapshot snapshot = OneDevice();
  snapshot.admission = Admission::kHeld;
  snapshot.hold_message = "new disks";
  snapshot.queued = {{.name = "jobs/aaaa", .host_bytes = 1}};
  const ScheduleDecision decision = Schedule(snapshot);
  EXPECT_THAT(decision.starts, IsEmpty());
  EXPECT_EQ(decision.waits[0].reason, v1::STATE_REASON_DRAINING);
  EXPECT_THAT(decision.waits[0].message, HasSubstr("new disks"));
}

TEST(ScheduleTest, AUserRunsAsManyJobsAsTheQuotaAllowsAndHoldsBackNobodyElse) {
  ScheduleSnapshot snapshot = OneDevice();
  snapshot.devices = {{.id = "cpu0"}, {.id = "cpu1"}, {.id = "cpu2"}, {.id = "cpu3"}};
  internal::UserQuota& quota = snapshot.quotas.emplace_back();
  quota.set_user("ann");
  quota.set_running_jobs(2);
  snapshot.running = {{.name = "jobs/rrrr", .owner = "ann", .device = "cpu0", .host_bytes = kGiB}};
  snapshot.queued = {{.name = "jobs/ann2", .owner = "ann", .host_bytes = kGiB},
                     {.name = "jobs/ann3", .owner = "ann", .host_bytes = kGiB},
                     {.name = "jobs/bob1", .owner = "bob", .host_bytes = kGiB}};
  ScheduleDecision decision = Schedule(snapshot);
  EXPECT_THAT(decision.starts, ElementsAre(Start{"jobs/ann2", "cpu1"}, Start{"jobs/bob1", "cpu2"}));
  ASSERT_EQ(decision.waits.size(), 1u);
  EXPECT_EQ(decision.waits[0].name, "jobs/ann3");
  EXPECT_EQ(decision.waits[0].reason, v1::STATE_REASON_QUOTA);
  EXPECT_EQ(decision.waits[0].message, "2 jobs of ann run, and the quota is 2 (running_jobs)");
  // One over the quota makes nobody yield, whatever its priority.
  snapshot.devices.resize(1);
  snapshot.quotas[0].set_running_jobs(1);
  snapshot.running[0].owner = "ann";
  snapshot.queued = {
      {.name = "jobs/ann2", .owner = "ann", .host_bytes = kGiB, .priority = v1::PRIORITY_HIGH}};
  decision = Schedule(snapshot);
  EXPECT_THAT(decision.yields, IsEmpty());
  EXPECT_EQ(decision.waits[0].reason, v1::STATE_REASON_QUOTA);
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

// ---- Priorities ----

QueuedJob CpuJob(const std::string& name, v1::Priority priority, int64_t host_bytes = kGiB) {
  return {.name = name, .host_bytes = host_bytes, .priority = priority};
}

RunningJob OnCpu(const std::string& name, int rank, Hold hold = Hold::kYields,
                 int64_t host_bytes = kGiB) {
  return {.name = name, .device = "cpu", .host_bytes = host_bytes, .rank = rank, .hold = hold};
}

std::vector<std::string> WaitingIn(const ScheduleDecision& decision) {
  std::vector<std::string> names;
  for (const Wait& wait : decision.waits) names.push_back(wait.name);
  return names;
}

TEST(SchedulePriorityTest, TheQueueGoesByPriorityThenByAge) {
  ScheduleSnapshot snapshot = OneDevice();
  snapshot.queued = {CpuJob("jobs/low", v1::PRIORITY_LOW), CpuJob("jobs/old", v1::PRIORITY_NORMAL),
                     CpuJob("jobs/new", v1::PRIORITY_NORMAL),
                     CpuJob("jobs/high", v1::PRIORITY_HIGH)};
  const ScheduleDecision decision = Schedule(snapshot);
  EXPECT_THAT(decision.starts, ElementsAre(Start{"jobs/high", "cpu"}));
  EXPECT_THAT(WaitingIn(decision), ElementsAre("jobs/old", "jobs/new", "jobs/low"));
}

TEST(SchedulePriorityTest, WhoHasWaitedLongEnoughRises) {
  ScheduleSnapshot snapshot = OneDevice();
  snapshot.aging_seconds = 100;
  snapshot.queued = {CpuJob("jobs/low", v1::PRIORITY_LOW), CpuJob("jobs/high", v1::PRIORITY_HIGH)};
  snapshot.queued[0].waited_seconds = 199;
  EXPECT_THAT(Schedule(snapshot).starts, ElementsAre(Start{"jobs/high", "cpu"}));
  snapshot.queued[0].waited_seconds = 200;
  EXPECT_THAT(Schedule(snapshot).starts, ElementsAre(Start{"jobs/low", "cpu"}));
  snapshot.aging_seconds = 0;
  EXPECT_THAT(Schedule(snapshot).starts, ElementsAre(Start{"jobs/high", "cpu"}));
  EXPECT_EQ(Rank(v1::PRIORITY_LOW, 1'000'000, 100), v1::PRIORITY_HIGH + 1) << "by age alone";
  EXPECT_EQ(Rank(v1::PRIORITY_LOW, -5, 100), v1::PRIORITY_LOW) << "a clock that was set back";
}

TEST(SchedulePriorityTest, OnlyAHigherPriorityMakesARunningJobYield) {
  struct Case {
    v1::Priority queued;
    int rank;
    Hold hold;
    bool yields;
  };
  using enum v1::Priority;
  for (const Case& one : {
           Case{PRIORITY_HIGH, PRIORITY_NORMAL, Hold::kYields, true},
           Case{PRIORITY_NORMAL, PRIORITY_LOW, Hold::kYields, true},
           Case{PRIORITY_NORMAL, PRIORITY_NORMAL, Hold::kYields, false},
           Case{PRIORITY_LOW, PRIORITY_HIGH, Hold::kYields, false},
           Case{PRIORITY_HIGH, PRIORITY_LOW, Hold::kKeeps, false},
           Case{PRIORITY_HIGH, PRIORITY_LOW, Hold::kLeaves, false},
       }) {
    ScheduleSnapshot snapshot = OneDevice();
    snapshot.running = {OnCpu("jobs/runs", one.rank, one.hold)};
    snapshot.queued = {CpuJob("jobs/waits", one.queued)};
    const ScheduleDecision decision = Schedule(snapshot);
    EXPECT_THAT(decision.starts, IsEmpty());
    EXPECT_EQ(decision.yields.size(), one.yields ? 1u : 0u) << one.queued << " " << one.rank;
    if (one.yields) {
      EXPECT_EQ(decision.yields[0], (Yield{"jobs/runs", "jobs/waits"}));
    }
    ASSERT_EQ(decision.waits.size(), 1u);
    EXPECT_EQ(decision.waits[0].reason, v1::STATE_REASON_DEVICE_BUSY);
    const bool leaves = one.yields || one.hold == Hold::kLeaves;
    EXPECT_EQ(decision.waits[0].message.find("asked to leave") != std::string::npos, leaves);
  }
}

TEST(SchedulePriorityTest, AHighPriorityThatWaitsLongMakesNobodyYieldByItsAge) {
  ScheduleSnapshot snapshot = OneDevice();
  snapshot.aging_seconds = 10;
  snapshot.running = {OnCpu("jobs/runs", v1::PRIORITY_NORMAL)};
  snapshot.queued = {CpuJob("jobs/low", v1::PRIORITY_LOW)};
  snapshot.queued[0].waited_seconds = 1000;
  EXPECT_THAT(Schedule(snapshot).yields, IsEmpty());
}

TEST(SchedulePriorityTest, OneLeavesForOneAndItsPlaceGoesToNobodyElse) {
  ScheduleSnapshot snapshot = TwoGpus();
  snapshot.running = {{.name = "jobs/first", .device = "GPU-large"},
                      {.name = "jobs/second", .device = "GPU-small"}};
  QueuedJob high = GpuJob("jobs/high", kGiB);
  high.priority = v1::PRIORITY_HIGH;
  snapshot.queued = {high, GpuJob("jobs/other", kGiB)};
  EXPECT_THAT(Schedule(snapshot).yields, ElementsAre(Yield{"jobs/second", "jobs/high"}))
      << "the newest of those of one rank";
  // Asked already: nobody else is.
  snapshot.running[1].hold = Hold::kLeaves;
  EXPECT_THAT(Schedule(snapshot).yields, IsEmpty());
  // A second one takes the other.
  QueuedJob also = high;
  also.name = "jobs/also";
  snapshot.queued = {high, also};
  EXPECT_THAT(Schedule(snapshot).yields, ElementsAre(Yield{"jobs/first", "jobs/also"}));
}

TEST(SchedulePriorityTest, TheLowestRankYieldsFirstAndOnlyOnADeviceThatWillDo) {
  ScheduleSnapshot snapshot = TwoGpus();
  snapshot.running = {{.name = "jobs/low", .device = "GPU-small", .rank = v1::PRIORITY_LOW},
                      {.name = "jobs/normal", .device = "GPU-large"}};
  QueuedJob high = GpuJob("jobs/high", kGiB);
  high.priority = v1::PRIORITY_HIGH;
  snapshot.queued = {high};
  EXPECT_THAT(Schedule(snapshot).yields, ElementsAre(Yield{"jobs/low", "jobs/high"}));
  snapshot.queued[0].device.bytes = 70 * kGiB;
  EXPECT_THAT(Schedule(snapshot).yields, ElementsAre(Yield{"jobs/normal", "jobs/high"}));
}

TEST(SchedulePriorityTest, AsManyYieldAsMemoryNeedsOrNone) {
  ScheduleSnapshot snapshot = TwoGpus();
  snapshot.running = {{.name = "jobs/a", .device = "GPU-large", .host_bytes = 4 * kGiB},
                      {.name = "jobs/b", .device = "GPU-small", .host_bytes = 4 * kGiB}};
  snapshot.queued = {CpuJob("jobs/high", v1::PRIORITY_HIGH, 5 * kGiB)};
  ScheduleDecision decision = Schedule(snapshot);
  EXPECT_THAT(decision.yields, ElementsAre(Yield{"jobs/b", "jobs/high"}));
  EXPECT_EQ(decision.waits[0].reason, v1::STATE_REASON_HOST_MEMORY);
  snapshot.queued[0].host_bytes = 9 * kGiB;
  EXPECT_EQ(Schedule(snapshot).yields.size(), 2u);
  snapshot.running[0].hold = Hold::kKeeps;
  EXPECT_THAT(Schedule(snapshot).yields, IsEmpty()) << "it would not be enough";
}

TEST(SchedulePriorityTest, WhatIsPromisedIsNotGivenAwayMeanwhile) {
  ScheduleSnapshot snapshot = TwoGpus();
  snapshot.running = {{.name = "jobs/a", .device = "GPU-large", .host_bytes = 8 * kGiB}};
  snapshot.running[0].hold = Hold::kLeaves;
  // The first needs what jobs/a leaves; the second would fit now, but not beside the first.
  QueuedJob large = GpuJob("jobs/large", 70 * kGiB);
  large.host_bytes = 9 * kGiB;
  QueuedJob small = GpuJob("jobs/small", kGiB);
  small.host_bytes = 2 * kGiB;
  snapshot.queued = {large, small};
  EXPECT_THAT(Schedule(snapshot).starts, IsEmpty());
  snapshot.queued[1].host_bytes = kGiB;
  EXPECT_THAT(Schedule(snapshot).starts, ElementsAre(Start{"jobs/small", "GPU-small"}));
}

TEST(SchedulePriorityTest, WhoHasYieldedWaitsOutAPauseThatGrows) {
  ScheduleSnapshot snapshot = OneDevice();
  snapshot.queued = {CpuJob("jobs/late", v1::PRIORITY_HIGH),
                     CpuJob("jobs/next", v1::PRIORITY_NORMAL)};
  snapshot.queued[0].back_off_seconds = 12;
  const ScheduleDecision decision = Schedule(snapshot);
  EXPECT_THAT(decision.starts, ElementsAre(Start{"jobs/next", "cpu"}));
  EXPECT_EQ(decision.waits[0].reason, v1::STATE_REASON_BACK_OFF);
  EXPECT_THAT(decision.waits[0].message, HasSubstr("12 s"));
  EXPECT_THAT(decision.yields, IsEmpty());
  EXPECT_EQ(PreemptionPauseSeconds(1), 30);
  EXPECT_EQ(PreemptionPauseSeconds(2), 60);
  EXPECT_EQ(PreemptionPauseSeconds(1000), 600);
}

// ---- Dependencies ----

TEST(ScheduleParentsTest, EachRuleInEachStateOfAParent) {
  using enum v1::JobState;
  enum class Answer { kStarts, kWaits, kDrops };
  using enum Answer;
  struct Case {
    v1::JobState parent;
    Answer succeeded, wait, ended;
  };
  for (const Case& one : {
           Case{JOB_STATE_QUEUED, kWaits, kWaits, kWaits},
           Case{JOB_STATE_RUNNING, kWaits, kWaits, kWaits},
           Case{JOB_STATE_PAUSED, kWaits, kWaits, kWaits},
           Case{JOB_STATE_CANCELLING, kWaits, kWaits, kWaits},
           Case{JOB_STATE_SUCCEEDED, kStarts, kStarts, kStarts},
           Case{JOB_STATE_FAILED, kDrops, kWaits, kStarts},
           Case{JOB_STATE_CANCELLED, kDrops, kWaits, kStarts},
       }) {
    const std::pair<v1::AfterRule, Answer> rules[] = {{v1::AFTER_RULE_SUCCEEDED, one.succeeded},
                                                      {v1::AFTER_RULE_WAIT, one.wait},
                                                      {v1::AFTER_RULE_ENDED, one.ended}};
    for (const auto& [rule, answer] : rules) {
      ScheduleSnapshot snapshot = OneDevice();
      snapshot.queued = {CpuJob("jobs/child", v1::PRIORITY_HIGH),
                         CpuJob("jobs/else", v1::PRIORITY_NORMAL)};
      snapshot.queued[0].parents = {{"jobs/done", JOB_STATE_SUCCEEDED}, {"jobs/mum", one.parent}};
      snapshot.queued[0].after_rule = rule;
      const ScheduleDecision decision = Schedule(snapshot);
      const std::string what = absl::StrCat(v1::AfterRule_Name(rule), " ", one.parent);
      EXPECT_EQ(decision.starts[0].name, answer == kStarts ? "jobs/child" : "jobs/else") << what;
      EXPECT_EQ(decision.dropouts.size(), answer == kDrops ? 1u : 0u) << what;
      if (answer == kWaits) {
        ASSERT_EQ(decision.waits.size(), 1u) << what;
        EXPECT_EQ(decision.waits[0].reason, v1::STATE_REASON_DEPENDENCY);
        EXPECT_THAT(decision.waits[0].message, HasSubstr("jobs/mum"));
        EXPECT_THAT(decision.waits[0].message, testing::Not(HasSubstr("jobs/done")));
      }
      if (answer == kDrops) {
        EXPECT_EQ(decision.dropouts[0].reason, v1::STATE_REASON_DEPENDENCY_FAILED);
        EXPECT_THAT(decision.dropouts[0].message, HasSubstr("jobs/mum"));
      }
    }
  }
}

}  // namespace
}  // namespace penstock::server
