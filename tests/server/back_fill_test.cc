// Whether later jobs start before one that waits, and that they never delay it: first by cases,
// then in simulated runs of random queues, against a brute reckoning of when it would have started.
#include "server/jobs/back_fill.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/run_time.h"
#include "server/jobs/schedule.h"

namespace penstock::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kGiB = int64_t{1} << 30;

// Three equal GPUs and 100 GiB. 60 GiB are taken for another 1000 s, and the first of the queue
// needs 70.
ScheduleSnapshot HeadWaitsForMemory() {
  ScheduleSnapshot snapshot;
  snapshot.devices = {{.id = "a"}, {.id = "b"}, {.id = "c"}};
  snapshot.host_memory_bytes = 100 * kGiB;
  snapshot.running = {
      {.name = "jobs/runs", .device = "a", .host_bytes = 60 * kGiB, .seconds_left = 1000}};
  snapshot.queued = {{.name = "jobs/head", .host_bytes = 70 * kGiB},
                     {.name = "jobs/later", .host_bytes = 35 * kGiB}};
  return snapshot;
}

TEST(BackFillTest, StartsWhatEndsInTimeAndNothingThatDoesNot) {
  ScheduleSnapshot snapshot = HeadWaitsForMemory();
  for (const auto& [seconds, starts] : {std::pair<int64_t, bool>{1000, true}, {1001, false}}) {
    snapshot.queued[1].seconds = seconds;
    const ScheduleDecision decision = Schedule(snapshot);
    EXPECT_EQ(decision.starts.size(), starts ? 1u : 0u) << seconds;
    EXPECT_EQ(decision.waits[0].reason, v1::STATE_REASON_HOST_MEMORY);
    EXPECT_THAT(decision.waits[0].message,
                HasSubstr("there is room in about 17 min, when jobs/runs has ended"));
    if (starts) continue;
    ASSERT_EQ(decision.waits.size(), 2u);
    EXPECT_EQ(decision.waits[1].reason, v1::STATE_REASON_WOULD_DELAY);
    EXPECT_THAT(decision.waits[1].message, HasSubstr("without delaying jobs/head"));
    EXPECT_THAT(decision.waits[1].message, HasSubstr("this job may take about 17 min"));
  }
}

TEST(BackFillTest, OfUnknownLengthOnlyWhatLeavesTheFirstWhatItNeeds) {
  ScheduleSnapshot snapshot = HeadWaitsForMemory();
  ScheduleDecision decision = Schedule(snapshot);
  EXPECT_THAT(decision.starts, IsEmpty());
  EXPECT_THAT(decision.waits[1].message, HasSubstr("limits.run_seconds can say it"));
  snapshot.queued[1].host_bytes = 30 * kGiB;  // 70 and 30 are 100
  EXPECT_THAT(Schedule(snapshot).starts, ElementsAre(Start{"jobs/later", "b"}));
}

TEST(BackFillTest, BehindOneThatMayStartAtAnyMomentNothingStartsThatItCouldNeed) {
  ScheduleSnapshot snapshot = HeadWaitsForMemory();
  snapshot.running[0].seconds_left.reset();
  snapshot.queued[1].host_bytes = 1;
  snapshot.queued[1].seconds = 1;
  EXPECT_THAT(Schedule(snapshot).starts, IsEmpty());
  // It waits for one device of a kind, of which the holder's memory comes back with it.
  snapshot.devices.push_back({.id = "G", .kind = v1::DEVICE_KIND_CUDA, .job_bytes = kGiB});
  snapshot.running[0].device = "G";
  snapshot.queued[0].device = {.kind = v1::DEVICE_KIND_CUDA, .bytes = 1};
  snapshot.queued[1].host_bytes = 30 * kGiB;
  EXPECT_THAT(Schedule(snapshot).starts, ElementsAre(Start{"jobs/later", "a"}));
  snapshot.queued[1].host_bytes += 1;
  EXPECT_THAT(Schedule(snapshot).starts, IsEmpty());
}

TEST(BackFillTest, KeepsTheDeviceThatTheFirstWillTake) {
  ScheduleSnapshot snapshot = HeadWaitsForMemory();
  snapshot.devices.resize(2);
  snapshot.queued[0].device.uuid = "b";
  snapshot.queued[1].host_bytes = 1;
  EXPECT_THAT(Schedule(snapshot).starts, IsEmpty());
  snapshot.devices.push_back({.id = "c"});
  EXPECT_THAT(Schedule(snapshot).starts, ElementsAre(Start{"jobs/later", "c"}))
      << "another one than the smallest that is free, if that is kept";
}

TEST(BackFillTest, OneThatCanNeverStartAsThingsAreHoldsBackNobody) {
  ScheduleSnapshot snapshot = HeadWaitsForMemory();
  snapshot.queued[0].host_bytes = 101 * kGiB;
  EXPECT_THAT(Schedule(snapshot).starts, ElementsAre(Start{"jobs/later", "b"}));
  snapshot = HeadWaitsForMemory();
  snapshot.queued[0].device.failed = {"a", "b", "c"};
  EXPECT_THAT(Schedule(snapshot).starts, ElementsAre(Start{"jobs/later", "b"}));
}

TEST(BackFillTest, WhileADeviceIsMeasuredNothingStartsAndEverybodyIsToldWhy) {
  ScheduleSnapshot snapshot = HeadWaitsForMemory();
  snapshot.running.clear();
  snapshot.admission = Admission::kMeasures;
  const ScheduleDecision decision = Schedule(snapshot);
  EXPECT_THAT(decision.starts, IsEmpty());
  ASSERT_EQ(decision.waits.size(), 2u);
  EXPECT_THAT(decision.waits[1].message, HasSubstr("measures a device"));
}

// ---- How long jobs run ----

TEST(RunTimeTest, TheTimeLimitOrThePredictionWhicheverIsLess) {
  v1::Job job;
  job.mutable_train();
  EXPECT_EQ(LongestRunSeconds(job), std::nullopt);
  job.mutable_plan()->mutable_estimate()->set_seconds(1000);
  EXPECT_EQ(LongestRunSeconds(job), 1800);
  job.mutable_train()->mutable_limits()->set_run_seconds(600);
  EXPECT_EQ(LongestRunSeconds(job), 900);
  job.set_run_seconds(500);
  EXPECT_EQ(LongestRunSeconds(job), 400) << "what earlier attempts have had counts";
}

TEST(RunTimeTest, OneThatRunsIsKnownByWhatItMeasures) {
  const absl::Time now = absl::FromUnixSeconds(1'000'000);
  v1::Job job;
  job.mutable_attempt_start_time()->set_seconds(1'000'000 - 100);
  EXPECT_EQ(SecondsLeft(job, now), std::nullopt);
  job.mutable_plan()->mutable_estimate()->set_seconds(150);
  EXPECT_EQ(SecondsLeft(job, now), 50);
  job.mutable_plan()->mutable_estimate()->set_seconds(90);
  EXPECT_EQ(SecondsLeft(job, now), std::nullopt) << "it has taken longer than was predicted";
  job.mutable_progress()->set_remaining_seconds(70);
  job.mutable_progress()->mutable_update_time()->set_seconds(1'000'000 - 10);
  EXPECT_EQ(SecondsLeft(job, now), 60);
  job.mutable_train()->mutable_limits()->set_run_seconds(120);
  EXPECT_EQ(SecondsLeft(job, now), 20);
  job.mutable_train()->mutable_limits()->set_run_seconds(90);
  EXPECT_EQ(SecondsLeft(job, now), 0);
  EXPECT_EQ(DurationText(45), "about 45 s");
  EXPECT_EQ(DurationText(3600 * 3 + 60 * 20), "about 3 h 20 min");
  EXPECT_EQ(DurationText(86'400 * 3), "about 3 days");
}

// ---- Random queues ----

enum class Ends : uint8_t { kAllKnown, kSomeKnown, kNoneKnown };

// A machine on which jobs run exactly as long as they say, if they say it.
class SimulatedMachine {
 public:
  SimulatedMachine(uint32_t seed, Ends ends) : random_(seed) {
    snapshot_.devices = {{.id = "cpu"},
                         {.id = "large", .kind = v1::DEVICE_KIND_CUDA, .job_bytes = 80},
                         {.id = "small", .kind = v1::DEVICE_KIND_CUDA, .job_bytes = 24},
                         {.id = "small2", .kind = v1::DEVICE_KIND_CUDA, .job_bytes = 24}};
    snapshot_.host_memory_bytes = 100;
    for (int i = 0; i < 14; ++i) {
      QueuedJob job{.name = absl::StrCat("jobs/", 100 + i), .host_bytes = Draw(1, 90)};
      if (Draw(0, 3) > 0) job.device = {.kind = v1::DEVICE_KIND_CUDA, .bytes = Draw(1, 40)};
      if (Draw(0, 9) == 0) job.device = {.kind = v1::DEVICE_KIND_CUDA, .uuid = "small2"};
      if (Draw(0, 9) == 0) job.lane = Lane::kExport;
      seconds_[job.name] = Draw(1, 50);
      const bool known = ends == Ends::kAllKnown || (ends == Ends::kSomeKnown && Draw(0, 1) == 0);
      if (known) job.seconds = seconds_[job.name];
      snapshot_.queued.push_back(std::move(job));
    }
  }

  // To the end of all jobs. Checks that nobody is given what another one has, and that each job
  // that was first in the queue started no later than `promise` said, whenever it was asked.
  void Run(Ends ends) {
    while (!snapshot_.queued.empty() || !snapshot_.running.empty()) {
      const ScheduleDecision decision = Schedule(snapshot_);
      EXPECT_THAT(decision.yields, IsEmpty());
      for (const Start& start : decision.starts) Begin(start);
      CheckRoom();
      if (!decision.waits.empty()) {
        EXPECT_EQ(decision.waits.size(), snapshot_.queued.size());
        const std::string& first = decision.waits.front().name;
        const auto start = StartWithoutOthers(Find(first), ends);
        if (start) {
          int64_t& promise = promises_.try_emplace(first, *start).first->second;
          promise = std::min(promise, *start);
        }
      }
      ASSERT_FALSE(snapshot_.running.empty()) << "jobs wait, and nothing runs";
      PassTime();
    }
  }
  int64_t passed() const { return passed_; }

 private:
  int64_t Draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  const QueuedJob& Find(const std::string& name) const {
    return *std::find_if(snapshot_.queued.begin(), snapshot_.queued.end(),
                         [&](const QueuedJob& job) { return job.name == name; });
  }

  void Begin(const Start& start) {
    const auto job = std::find_if(snapshot_.queued.begin(), snapshot_.queued.end(),
                                  [&](const QueuedJob& one) { return one.name == start.name; });
    const auto promise = promises_.find(start.name);
    if (promise != promises_.end()) {
      EXPECT_LE(now_, promise->second) << start.name;
    }
    if (job != snapshot_.queued.begin()) ++passed_;
    snapshot_.running.push_back({.name = job->name,
                                 .lane = job->lane,
                                 .device = start.device,
                                 .host_bytes = job->host_bytes,
                                 .seconds_left = job->seconds});
    ends_[job->name] = now_ + seconds_.at(job->name);
    snapshot_.queued.erase(job);
  }

  void CheckRoom() const {
    int64_t bytes = 0;
    std::map<std::string, int> holders;
    for (const RunningJob& job : snapshot_.running) {
      bytes += job.host_bytes;
      EXPECT_EQ(++holders[job.lane == Lane::kExport ? "export" : job.device], 1) << job.device;
    }
    EXPECT_LE(bytes, snapshot_.host_memory_bytes);
  }

  // When the job would start if from now on no other did: by the ends that are known, or, if none
  // is, by those that come. Moment for moment, without the code under test.
  std::optional<int64_t> StartWithoutOthers(const QueuedJob& job, Ends ends) const {
    for (int64_t time = now_; time < now_ + 1000; ++time) {
      int64_t bytes = job.host_bytes;
      std::vector<std::string> held;
      for (const RunningJob& running : snapshot_.running) {
        const bool counts = running.seconds_left || ends == Ends::kNoneKnown;
        if (counts && ends_.at(running.name) <= time && time > now_) continue;
        bytes += running.host_bytes;
        held.push_back(running.lane == Lane::kExport ? "export" : running.device);
      }
      bool place = job.lane == Lane::kExport && !testing::Value(held, testing::Contains("export"));
      for (const ScheduleDevice& device : snapshot_.devices) {
        place = place || (job.lane == Lane::kDevice && CanRunOn(job.device, device) &&
                          !testing::Value(held, testing::Contains(device.id)));
      }
      if (place && bytes <= snapshot_.host_memory_bytes) return time;
    }
    return std::nullopt;
  }

  void PassTime() {
    int64_t next = INT64_MAX;
    for (const RunningJob& job : snapshot_.running) next = std::min(next, ends_.at(job.name));
    for (RunningJob& job : snapshot_.running) {
      if (job.seconds_left) *job.seconds_left -= next - now_;
    }
    now_ = next;
    std::erase_if(snapshot_.running,
                  [&](const RunningJob& job) { return ends_.at(job.name) == now_; });
  }

  std::mt19937 random_;
  ScheduleSnapshot snapshot_;
  int64_t now_ = 0;
  std::map<std::string, int64_t> seconds_, ends_, promises_;  // by job
  int64_t passed_ = 0;  // starts of jobs before one that was older
};

TEST(BackFillPropertyTest, TheFirstStartsNoLaterThanWithoutThoseThatPassIt) {
  for (const Ends ends : {Ends::kAllKnown, Ends::kSomeKnown, Ends::kNoneKnown}) {
    int64_t passed = 0;
    for (uint32_t seed = 0; seed < 300; ++seed) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, " of kind ", static_cast<int>(ends)));
      SimulatedMachine machine(seed, ends);
      machine.Run(ends);
      passed += machine.passed();
      if (HasFailure()) return;
    }
    EXPECT_GT(passed, 300) << "or nothing was tried";
  }
}

}  // namespace
}  // namespace penstock::server
