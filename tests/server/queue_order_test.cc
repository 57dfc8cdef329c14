// The order of the queue by fair share, and what it is made of.
#include "server/jobs/queue_order.h"

#include <numbers>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/device_use.h"

namespace penstock::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

QueuedJob Of(const std::string& owner, const std::string& name, double used = 0,
             int64_t seconds = 100) {
  QueuedJob job{.name = name, .owner = owner};
  job.owner_used_seconds = used;
  job.seconds = seconds;
  return job;
}

ScheduleSnapshot Sharing(std::vector<QueuedJob> queued) {
  ScheduleSnapshot snapshot;
  snapshot.fair_share_half_life_seconds = 1000;
  snapshot.queued = std::move(queued);
  return snapshot;
}

std::vector<std::string> NamesOf(const ScheduleSnapshot& snapshot) {
  std::vector<std::string> names;
  for (const QueuePlace& place : QueueOrder(snapshot)) names.push_back(place.job->name);
  return names;
}

TEST(QueueOrderTest, WhoHasUsedLessComesFirstAndTheOtherIsToldWhy) {
  const ScheduleSnapshot snapshot =
      Sharing({Of("ann", "a1", 7200), Of("ann", "a2", 7200), Of("bob", "b1", 60)});
  const std::vector<QueuePlace> order = QueueOrder(snapshot);
  EXPECT_THAT(NamesOf(snapshot), ElementsAre("b1", "a1", "a2"));
  EXPECT_EQ(order[0].passed, "");
  EXPECT_THAT(order[1].passed, HasSubstr("1 newer job of bob comes first by fair share: ann"));
  EXPECT_THAT(order[1].passed, HasSubstr("about 2 h 0 min"));
}

TEST(QueueOrderTest, UsersTakeTurnsByWhatTheirJobsWillTake) {
  // ann's first counts 100 s, so bob's are next until they have counted as much.
  EXPECT_THAT(
      NamesOf(Sharing({Of("ann", "a1"), Of("ann", "a2"), Of("ann", "a3"), Of("bob", "b1", 0, 40),
                       Of("bob", "b2", 0, 40), Of("bob", "b3", 0, 40), Of("bob", "b4", 0, 40)})),
      ElementsAre("a1", "b1", "b2", "b3", "a2", "b4", "a3"));
}

TEST(QueueOrderTest, WithoutSharesOrAtOneUserTheOldestComesFirst) {
  ScheduleSnapshot snapshot = Sharing({Of("ann", "a1", 10), Of("ann", "a2", 10), Of("bob", "b1")});
  snapshot.fair_share_half_life_seconds = 0;
  EXPECT_THAT(NamesOf(snapshot), ElementsAre("a1", "a2", "b1"));
  EXPECT_THAT(NamesOf(Sharing({Of("ann", "a1", 9), Of("ann", "a2", 1), Of("ann", "a3", 5)})),
              ElementsAre("a1", "a2", "a3"));
}

TEST(QueueOrderTest, APriorityComesBeforeAnyShare) {
  ScheduleSnapshot snapshot = Sharing({Of("bob", "b1"), Of("ann", "a1", 1e6)});
  snapshot.queued[1].priority = v1::PRIORITY_HIGH;
  EXPECT_THAT(NamesOf(snapshot), ElementsAre("a1", "b1"));
}

TEST(QueueOrderTest, WhatWasUsedOfGpusDoesNotCountForTheCpu) {
  ScheduleSnapshot snapshot =
      Sharing({Of("ann", "gpu", 500), Of("bob", "cpu1", 50), Of("ann", "cpu2", 0)});
  snapshot.queued[0].device.kind = v1::DEVICE_KIND_CUDA;
  // ann's jobs keep their order; bob's comes before her GPU job.
  EXPECT_THAT(NamesOf(snapshot), ElementsAre("cpu1", "gpu", "cpu2"));
}

// ---- Nobody is passed for ever ----

// One device, jobs of 10 s, and before each start a new user with one of high priority. `patient`
// has used very much. When does the job start?
int64_t StartAmongEverNewUsers(int64_t aging_seconds) {
  ScheduleSnapshot snapshot = Sharing({Of("patient", "old", 1e9, 10)});
  snapshot.aging_seconds = aging_seconds;
  for (int64_t now = 0; now < 10'000; now += 10) {
    snapshot.queued.push_back(Of(absl::StrCat("new", now), absl::StrCat("n", now), 0, 10));
    snapshot.queued.back().priority = v1::PRIORITY_HIGH;
    for (QueuedJob& job : snapshot.queued) job.waited_seconds += 10;
    const std::string next = QueueOrder(snapshot).front().job->name;
    if (next == "old") return now;
    std::erase_if(snapshot.queued, [&](const QueuedJob& job) { return job.name == next; });
  }
  return -1;
}

TEST(FairShareTest, ByAgingAJobStartsHoweverManyNewUsersCome) {
  // NORMAL rises to HIGH after one period and above it after two: then age alone counts.
  EXPECT_EQ(StartAmongEverNewUsers(300), 590);
  EXPECT_EQ(StartAmongEverNewUsers(0), -1) << "or the test tries nothing";
}

TEST(FairShareTest, WithoutAgingAUserComesBackAsTheUseFades) {
  // ann has had the device for long; bob and carl always have jobs of 10 s waiting.
  DeviceUse use(100);
  absl::Time now = absl::FromUnixSeconds(1'000'000);
  use.Add({.owner = "ann"}, now, 100'000);
  int64_t turns_of_ann = 0;
  for (int turn = 0; turn < 300; ++turn) {
    ScheduleSnapshot snapshot = Sharing({Of("ann", "ann"), Of("bob", "bob"), Of("carl", "carl")});
    const auto counted = use.Counted(now);
    for (QueuedJob& job : snapshot.queued) {
      const auto found = counted.find({.owner = job.owner});
      if (found != counted.end()) job.owner_used_seconds = found->second;
      job.seconds = 10;
    }
    const std::string next = QueueOrder(snapshot).front().job->name;
    EXPECT_FALSE(turn < 3 && next == "ann");
    turns_of_ann += next == "ann" ? 1 : 0;
    now += absl::Seconds(10);
    use.Add({.owner = next}, now, 10);
  }
  EXPECT_GT(turns_of_ann, 80) << "nearly a third";
  EXPECT_LE(turns_of_ann, 100);
}

// ---- Device time ----

TEST(DeviceUseTest, CountsHalfAfterAHalfLife) {
  const absl::Time end = absl::FromUnixSeconds(1'000'000);
  DeviceUse use(1000);
  use.Add({.owner = "ann"}, end, 1);
  EXPECT_NEAR(use.Counted(end).at({.owner = "ann"}), 1, 1e-3);
  EXPECT_NEAR(use.Counted(end + absl::Seconds(1000)).at({.owner = "ann"}), 0.5, 1e-3);
  EXPECT_NEAR(use.Counted(end + absl::Seconds(3000)).at({.owner = "ann"}), 0.125, 1e-3);
  EXPECT_NEAR(use.Counted(end - absl::Seconds(3000)).at({.owner = "ann"}), 1, 1e-3)
      << "a clock that was set back";
}

TEST(DeviceUseTest, OneLongUseCountsAsManyShortOnes) {
  const absl::Time start = absl::FromUnixSeconds(1'000'000);
  DeviceUse whole(1000), pieces(1000);
  whole.Add({.owner = "ann"}, start + absl::Seconds(5000), 5000);
  for (int i = 50; i-- > 0;) {  // in any order
    pieces.Add({.owner = "ann"}, start + absl::Seconds(100 * (i + 1)), 100);
  }
  const absl::Time now = start + absl::Seconds(6000);
  EXPECT_NEAR(whole.Counted(now).at({.owner = "ann"}), pieces.Counted(now).at({.owner = "ann"}),
              1e-6);
  // Who has always had a device counts no more than this.
  EXPECT_NEAR(CountedSeconds(1e9, 1000), 1000 / std::numbers::ln2, 1e-6);
  EXPECT_EQ(CountedSeconds(-1, 1000), 0);
}

TEST(DeviceUseTest, WithoutAHalfLifeNothingCounts) {
  DeviceUse use(0);
  use.Add({.owner = "ann"}, absl::FromUnixSeconds(1), 1);
  EXPECT_TRUE(use.Counted(absl::FromUnixSeconds(2)).empty());
  EXPECT_EQ(CountedSeconds(10, 0), 0);
}

}  // namespace
}  // namespace penstock::server
