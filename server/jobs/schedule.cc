#include "server/jobs/schedule.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/units.h"
#include "server/jobs/back_fill.h"
#include "server/jobs/queue_order.h"
#include "server/jobs/run_time.h"
#include "server/store/job_state.h"

namespace penstock::server {
namespace {

// Why none of the devices will do, each with what is wrong with it.
std::string WhyNone(const ScheduleSnapshot& snapshot, const DeviceNeed& need) {
  std::string why;
  for (const ScheduleDevice& device : snapshot.devices) {
    if (device.kind != need.kind || (!need.uuid.empty() && device.id != need.uuid)) continue;
    std::string problem = device.health_message;
    if (std::find(need.failed.begin(), need.failed.end(), device.id) != need.failed.end()) {
      problem = "failed under this job";
    } else if (problem.empty()) {
      problem = absl::StrCat("has ", FormatBytes(device.job_bytes), " for a job, this one needs ",
                             FormatBytes(need.bytes));
    }
    absl::StrAppend(&why, why.empty() ? "" : "; ", device.id, ": ", problem);
  }
  return why.empty() ? "this daemon has no such device" : why;
}

std::string Names(const std::vector<std::string>& names) { return absl::StrJoin(names, ", "); }

// Of so many jobs that wait, the starts are not delayed; those behind them wait a long time anyway.
constexpr size_t kMaxClaims = 64;

// One pass over the queue. `now_` is what is held at this moment; `soon_`, what will be when all
// that leave have left, with what is promised to jobs earlier in the queue. A job starts if both
// have room for it and it delays nobody, and is promised a place if `soon_` has.
class Scheduler {
 public:
  explicit Scheduler(const ScheduleSnapshot& snapshot) : snapshot_(snapshot) {
    for (const RunningJob& job : snapshot.running) {
      ++running_of_[job.owner];
      const Occupant occupant{.job = job.name,
                              .lane = job.lane,
                              .device = job.device,
                              .host_bytes = job.host_bytes,
                              .seconds_left = job.seconds_left};
      now_.Take(occupant);
      if (job.hold == Hold::kLeaves) {
        leaving_.push_back(job.name);
      } else {
        soon_.Take(occupant);
      }
    }
  }

  ScheduleDecision Run() {
    for (QueuePlace& place : QueueOrder(snapshot_)) {
      passed_ = std::move(place.passed);
      Place(*place.job);
    }
    return std::move(decision_);
  }

 private:
  void Place(const QueuedJob& job) {
    if (snapshot_.admission == Admission::kDraining) {
      Wait(job, v1::STATE_REASON_DRAINING, "the daemon is draining; the next one starts the job");
    } else if (snapshot_.admission == Admission::kHeld) {
      const std::string& why = snapshot_.hold_message;
      Wait(job, v1::STATE_REASON_DRAINING,
           absl::StrCat("an admin has the daemon start no jobs", why.empty() ? "" : ": ", why));
    } else if (snapshot_.admission == Admission::kMeasures) {
      Wait(job, v1::STATE_REASON_DEVICE_BUSY,
           "the daemon measures a device, which takes about a minute; jobs start after that");
    } else if (WaitsForParents(job)) {
      return;
    } else if (job.back_off_seconds > 0) {
      Wait(job, v1::STATE_REASON_BACK_OFF,
           absl::StrCat("starts again in ", job.back_off_seconds, " s at the earliest"));
    } else if (WaitsForQuota(job)) {
      return;
    } else if (job.lane == Lane::kExport) {
      PlaceExport(job);
    } else {
      PlaceTraining(job);
    }
  }

  void Wait(const QueuedJob& job, v1::StateReason reason, std::string message) {
    if (!passed_.empty()) absl::StrAppend(&message, "; ", passed_);
    decision_.waits.push_back({job.name, reason, std::move(message)});
  }

  // Also true if it is dropped.
  bool WaitsForParents(const QueuedJob& job) {
    std::vector<std::string> unfinished, failed;
    for (const ParentJob& parent : job.parents) {
      if (!IsFinal(parent.state)) {
        unfinished.push_back(absl::StrCat(parent.name, " (", StateName(parent.state), ")"));
      } else if (parent.state != v1::JOB_STATE_SUCCEEDED) {
        failed.push_back(absl::StrCat(parent.name, " (", StateName(parent.state), ")"));
      }
    }
    if (!failed.empty() && job.after_rule == v1::AFTER_RULE_SUCCEEDED) {
      decision_.dropouts.push_back(
          {job.name, v1::STATE_REASON_DEPENDENCY_FAILED,
           absl::StrCat("was to start after ", Names(failed), ", which did not succeed")});
      return true;
    }
    if (job.after_rule == v1::AFTER_RULE_WAIT) {
      unfinished.insert(unfinished.end(), failed.begin(), failed.end());
    }
    if (unfinished.empty()) return false;
    Wait(job, v1::STATE_REASON_DEPENDENCY, absl::StrCat("starts after ", Names(unfinished)));
    return true;
  }

  bool WaitsForQuota(const QueuedJob& job) {
    const int64_t limit = QuotaOf(snapshot_.quotas, job.owner).running_jobs();
    const int64_t running = running_of_[job.owner];
    if (limit == 0 || running < limit) return false;
    Wait(job, v1::STATE_REASON_QUOTA,
         absl::StrCat(running, running == 1 ? " job of " : " jobs of ", job.owner,
                      running == 1 ? " runs" : " run", ", and the quota is ", limit,
                      " (running_jobs)"));
    return true;
  }

  bool Fits(const QueuedJob& job, const Holdings& holdings) const {
    return job.host_bytes <= snapshot_.host_memory_bytes - holdings.reserved_bytes();
  }

  static Occupant On(const QueuedJob& job, const std::string& device) {
    return {.job = job.name,
            .lane = job.lane,
            .device = device,
            .host_bytes = job.host_bytes,
            .seconds_left = job.seconds};
  }

  // Who would start later for it; null: nobody.
  const QueuedJob* DelayedBy(const Occupant& occupant) const {
    if (claims_.empty()) return nullptr;
    Holdings with = soon_;
    with.Take(occupant);
    for (const QueuedJob* claim : claims_) {
      if (WouldDelay(*claim, soon_, with, snapshot_)) return claim;
    }
    return nullptr;
  }

  void StartOn(const QueuedJob& job, const std::string& device) {
    ++running_of_[job.owner];
    now_.Take(On(job, device));
    soon_.Take(On(job, device));
    decision_.starts.push_back({job.name, device});
  }

  void PlaceExport(const QueuedJob& job) {
    if (const Occupant* const holder = now_.ExportHolder()) {
      Wait(job, v1::STATE_REASON_DEVICE_BUSY,
           absl::StrCat("waits for ", holder->job, ": exports run one at a time"));
      Claim(job);
    } else if (!Fits(job, now_) || !Fits(job, soon_)) {
      WaitForMemory(job);
      Claim(job);
    } else if (const QueuedJob* const delayed = DelayedBy(On(job, ""))) {
      WaitForClaim(job, *delayed);
    } else {
      StartOn(job, "");
    }
  }

  // Those that the job can run on and that have no holder in any of these, the smallest first.
  std::vector<const ScheduleDevice*> FreeDevices(const QueuedJob& job,
                                                 const std::vector<const Holdings*>& all) const {
    std::vector<const ScheduleDevice*> free;
    for (const ScheduleDevice& device : snapshot_.devices) {
      if (!CanRunOn(job.device, device)) continue;
      const bool held = std::any_of(all.begin(), all.end(), [&](const Holdings* some) {
        return some->HolderOf(device.id) != nullptr;
      });
      if (!held) free.push_back(&device);
    }
    std::stable_sort(free.begin(), free.end(),
                     [](const auto* a, const auto* b) { return a->job_bytes < b->job_bytes; });
    return free;
  }

  void PlaceTraining(const QueuedJob& job) {
    const std::vector<const ScheduleDevice*> devices = FreeDevices(job, {&now_, &soon_});
    if (!devices.empty() && Fits(job, now_) && Fits(job, soon_)) {
      const QueuedJob* delayed = nullptr;
      for (const ScheduleDevice* device : devices) {
        delayed = DelayedBy(On(job, device->id));
        if (delayed == nullptr) return StartOn(job, device->id);
      }
      return WaitForClaim(job, *delayed);
    }
    const bool promised = Promise(job) || MakeRoom(job);
    if (FreeDevices(job, {&now_}).empty()) {
      WaitForDevice(job);
    } else if (devices.empty()) {
      Wait(job, v1::STATE_REASON_DEVICE_BUSY, "waits behind jobs that come before it");
    } else if (promised) {
      Wait(job, v1::STATE_REASON_HOST_MEMORY,
           absl::StrCat("waits for host memory of ", Names(leaving_), ", asked to leave"));
    } else {
      WaitForMemory(job);
    }
    if (!promised) Claim(job);
  }

  // From here on no job starts that would delay this one: unless it can never start as things are.
  void Claim(const QueuedJob& job) {
    const bool can_start = Fits(job, {}) && (job.lane == Lane::kExport || HasDevice(job));
    if (can_start && claims_.size() < kMaxClaims) claims_.push_back(&job);
  }

  bool HasDevice(const QueuedJob& job) const {
    return std::any_of(snapshot_.devices.begin(), snapshot_.devices.end(),
                       [&](const auto& device) { return CanRunOn(job.device, device); });
  }

  // A place among what those who leave will leave behind.
  bool Promise(const QueuedJob& job) {
    if (leaving_.empty() || !Fits(job, soon_)) return false;
    for (const ScheduleDevice* device : FreeDevices(job, {&soon_})) {
      if (DelayedBy(On(job, device->id)) != nullptr) continue;
      soon_.Take(On(job, device->id));
      return true;
    }
    return false;
  }

  // Those who may be asked to make room for the job, in the order in which they are asked.
  std::vector<const RunningJob*> Candidates(const QueuedJob& job) const {
    std::vector<const RunningJob*> found;
    for (const RunningJob& running : snapshot_.running) {
      const bool asked =
          std::any_of(decision_.yields.begin(), decision_.yields.end(),
                      [&](const Yield& yield) { return yield.name == running.name; });
      if (running.hold == Hold::kYields && running.rank < job.priority && !asked) {
        found.push_back(&running);
      }
    }
    // Running jobs are listed oldest first.
    std::reverse(found.begin(), found.end());
    std::stable_sort(found.begin(), found.end(),
                     [](const RunningJob* a, const RunningJob* b) { return a->rank < b->rank; });
    return found;
  }

  const ScheduleDevice* DeviceOf(const RunningJob& running, const QueuedJob& job) const {
    for (const ScheduleDevice& device : snapshot_.devices) {
      if (device.id == running.device && CanRunOn(job.device, device)) return &device;
    }
    return nullptr;
  }

  // Asks running jobs to yield, if that gives this one a device and the memory it needs.
  bool MakeRoom(const QueuedJob& job) {
    if (somebody_waits_for_memory_) return false;
    std::vector<const RunningJob*> candidates = Candidates(job), victims;
    Holdings after = soon_;
    const auto give_up = [&](std::vector<const RunningJob*>::iterator victim) {
      after.GiveBack((*victim)->name);
      victims.push_back(*victim);
      candidates.erase(victim);
    };
    const std::vector<const ScheduleDevice*> free = FreeDevices(job, {&soon_});
    const ScheduleDevice* device = free.empty() ? nullptr : free.front();
    if (device == nullptr) {
      const auto holder = std::find_if(
          candidates.begin(), candidates.end(),
          [&](const RunningJob* running) { return DeviceOf(*running, job) != nullptr; });
      if (holder == candidates.end()) return false;
      device = DeviceOf(**holder, job);
      give_up(holder);
    }
    while (!Fits(job, after) && !candidates.empty()) give_up(candidates.begin());
    if (!Fits(job, after)) return false;
    after.Take(On(job, device->id));
    soon_ = std::move(after);
    for (const RunningJob* victim : victims) {
      decision_.yields.push_back({victim->name, job.name});
      leaving_.push_back(victim->name);
    }
    return true;
  }

  void WaitForDevice(const QueuedJob& job) {
    std::string holders;
    for (const ScheduleDevice& device : snapshot_.devices) {
      if (!CanRunOn(job.device, device)) continue;
      const std::string& holder = now_.HolderOf(device.id)->job;
      const bool leaves = std::find(leaving_.begin(), leaving_.end(), holder) != leaving_.end();
      absl::StrAppend(&holders, holders.empty() ? "" : ", ", device.id, ", which ", holder, " has",
                      leaves ? " and was asked to leave" : "");
    }
    if (holders.empty()) {
      Wait(job, v1::STATE_REASON_DEVICE_UNAVAILABLE,
           absl::StrCat("no device can run it now: ", WhyNone(snapshot_, job.device)));
    } else {
      Wait(job, v1::STATE_REASON_DEVICE_BUSY,
           absl::StrCat("waits for ", holders, WhenItStarts(job)));
    }
  }

  // "; there is room in about 2 h 5 min, when jobs/x has ended", as far as that is known. Only of
  // the first that waits: what others find then hangs on those before them.
  std::string WhenItStarts(const QueuedJob& job) const {
    if (!claims_.empty()) return "";
    const auto start = FindEarliestStart(job, soon_, snapshot_);
    if (!start || start->seconds == 0) return "";
    return absl::StrCat("; there is room in ", DurationText(start->seconds), ", when ",
                        start->after, " has ended");
  }

  void WaitForMemory(const QueuedJob& job) {
    const int64_t reserved = std::max(now_.reserved_bytes(), soon_.reserved_bytes());
    Wait(job, v1::STATE_REASON_HOST_MEMORY,
         absl::StrCat("needs ", FormatBytes(job.host_bytes), " of host memory; ",
                      FormatBytes(std::max<int64_t>(0, snapshot_.host_memory_bytes - reserved)),
                      " of ", FormatBytes(snapshot_.host_memory_bytes), " is not reserved",
                      WhenItStarts(job)));
    somebody_waits_for_memory_ = true;
  }

  void WaitForClaim(const QueuedJob& job, const QueuedJob& delayed) {
    const auto start = FindEarliestStart(delayed, soon_, snapshot_);
    std::string why;
    if (!start) {
      why = absl::StrCat(", which may start at any moment: nobody knows how long those run that ",
                         "it waits for");
    } else if (job.seconds) {
      why = absl::StrCat(", which has room in ", DurationText(start->seconds),
                         ": this job may take ", DurationText(*job.seconds));
    } else {
      why =
          absl::StrCat(", which has room in ", DurationText(start->seconds),
                       ": nobody knows how long this job runs, but limits.run_seconds can say it");
    }
    Wait(job, v1::STATE_REASON_WOULD_DELAY,
         absl::StrCat("there is room, but not without delaying ", delayed.name, why));
  }

  const ScheduleSnapshot& snapshot_;
  std::map<std::string, int64_t> running_of_;  // by owner
  Holdings now_, soon_;
  std::vector<std::string> leaving_;      // running jobs that stop
  std::vector<const QueuedJob*> claims_;  // of jobs that wait
  bool somebody_waits_for_memory_ = false;
  std::string passed_;  // QueuePlace.passed of the job at hand
  ScheduleDecision decision_;
};

}  // namespace

bool CanRunOn(const DeviceNeed& need, const ScheduleDevice& device) {
  return device.kind == need.kind && device.health == v1::DEVICE_HEALTH_HEALTHY &&
         (need.uuid.empty() || device.id == need.uuid) &&
         (need.kind == v1::DEVICE_KIND_CPU || need.bytes <= device.job_bytes) &&
         std::find(need.failed.begin(), need.failed.end(), device.id) == need.failed.end();
}

ScheduleDecision Schedule(const ScheduleSnapshot& snapshot) { return Scheduler(snapshot).Run(); }

int Rank(v1::Priority priority, int64_t waited_seconds, int64_t aging_seconds) {
  const int64_t raised =
      aging_seconds > 0 ? std::max<int64_t>(0, waited_seconds) / aging_seconds : 0;
  return static_cast<int>(std::min<int64_t>(v1::PRIORITY_HIGH + 1, priority + raised));
}

int64_t PreemptionPauseSeconds(int32_t preemptions) {
  constexpr int64_t kFirst = 30, kLongest = 600;
  const int doublings = std::clamp(preemptions - 1, 0, 8);
  return std::min(kLongest, kFirst << doublings);
}

}  // namespace penstock::server
