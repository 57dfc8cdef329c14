#include "server/jobs/schedule.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/units.h"
#include "server/store/job_state.h"

namespace penstock::server {
namespace {

// What is given away, now or at a later time.
struct Holdings {
  std::map<std::string, std::string> holders;  // by device
  std::string export_holder;
  int64_t reserved_bytes = 0;

  void Take(const std::string& job, Lane lane, const std::string& device, int64_t bytes) {
    reserved_bytes += bytes;
    if (lane == Lane::kExport) {
      export_holder = job;
    } else {
      holders[device] = job;
    }
  }
  void GiveBack(const RunningJob& job) {
    reserved_bytes -= job.host_bytes;
    holders.erase(job.device);
  }
};

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

// One pass over the queue. `now_` is what is free at this moment; `soon_`, what will be when all
// that leave have left, less what is promised to jobs earlier in the queue. A job starts if both
// have room for it, and is promised a place if `soon_` has.
class Scheduler {
 public:
  explicit Scheduler(const ScheduleSnapshot& snapshot) : snapshot_(snapshot) {
    for (const RunningJob& job : snapshot.running) {
      ++running_of_[job.owner];
      now_.Take(job.name, job.lane, job.device, job.host_bytes);
      if (job.hold == Hold::kLeaves) {
        leaving_.push_back(job.name);
      } else {
        soon_.Take(job.name, job.lane, job.device, job.host_bytes);
      }
    }
  }

  ScheduleDecision Run() {
    for (const QueuedJob* job : InOrder()) Place(*job);
    return std::move(decision_);
  }

 private:
  std::vector<const QueuedJob*> InOrder() const {
    std::vector<const QueuedJob*> order;
    for (const QueuedJob& job : snapshot_.queued) order.push_back(&job);
    const auto rank = [this](const QueuedJob* job) {
      return Rank(job->priority, job->waited_seconds, snapshot_.aging_seconds);
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](const QueuedJob* a, const QueuedJob* b) { return rank(a) > rank(b); });
    return order;
  }

  void Place(const QueuedJob& job) {
    if (snapshot_.admission == Admission::kDraining) {
      Wait(job, v1::STATE_REASON_DRAINING, "the daemon is draining; the next one starts the job");
    } else if (snapshot_.admission == Admission::kHeld) {
      const std::string& why = snapshot_.hold_message;
      Wait(job, v1::STATE_REASON_DRAINING,
           absl::StrCat("an admin has the daemon start no jobs", why.empty() ? "" : ": ", why));
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
    return job.host_bytes <= snapshot_.host_memory_bytes - holdings.reserved_bytes;
  }

  void StartOn(const QueuedJob& job, const std::string& device) {
    ++running_of_[job.owner];
    now_.Take(job.name, job.lane, device, job.host_bytes);
    soon_.Take(job.name, job.lane, device, job.host_bytes);
    decision_.starts.push_back({job.name, device});
  }

  void PlaceExport(const QueuedJob& job) {
    if (!now_.export_holder.empty()) {
      Wait(job, v1::STATE_REASON_DEVICE_BUSY,
           absl::StrCat("waits for ", now_.export_holder, ": exports run one at a time"));
    } else if (!HasMemory(job)) {
      WaitForMemory(job);
    } else {
      StartOn(job, "");
    }
  }

  bool HasMemory(const QueuedJob& job) const {
    return waits_for_memory_ == nullptr && Fits(job, now_) && Fits(job, soon_);
  }

  // The smallest device that the job can run on and that has no holder in any of these.
  const ScheduleDevice* FreeDevice(const QueuedJob& job,
                                   const std::vector<const Holdings*>& all) const {
    const ScheduleDevice* best = nullptr;
    for (const ScheduleDevice& device : snapshot_.devices) {
      if (!CanRunOn(job.device, device)) continue;
      if (std::any_of(all.begin(), all.end(),
                      [&](const auto* some) { return some->holders.contains(device.id); })) {
        continue;
      }
      if (best == nullptr || device.job_bytes < best->job_bytes) best = &device;
    }
    return best;
  }

  void PlaceTraining(const QueuedJob& job) {
    const ScheduleDevice* device = FreeDevice(job, {&now_, &soon_});
    if (device != nullptr && HasMemory(job)) return StartOn(job, device->id);
    const bool promised = Promise(job) || MakeRoom(job);
    if (FreeDevice(job, {&now_}) == nullptr) {
      WaitForDevice(job);
    } else if (device == nullptr) {
      Wait(job, v1::STATE_REASON_DEVICE_BUSY, "waits behind jobs that come before it");
    } else if (promised) {
      Wait(job, v1::STATE_REASON_HOST_MEMORY,
           absl::StrCat("waits for host memory of ", Names(leaving_), ", asked to leave"));
    } else {
      WaitForMemory(job);
    }
  }

  // A place among what those who leave will leave behind.
  bool Promise(const QueuedJob& job) {
    if (waits_for_memory_ != nullptr || leaving_.empty() || !Fits(job, soon_)) return false;
    const ScheduleDevice* const device = FreeDevice(job, {&soon_});
    if (device == nullptr) return false;
    soon_.Take(job.name, job.lane, device->id, job.host_bytes);
    return true;
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
    if (waits_for_memory_ != nullptr) return false;
    std::vector<const RunningJob*> candidates = Candidates(job), victims;
    Holdings after = soon_;
    const auto give_up = [&](std::vector<const RunningJob*>::iterator victim) {
      after.GiveBack(**victim);
      victims.push_back(*victim);
      candidates.erase(victim);
    };
    const ScheduleDevice* device = FreeDevice(job, {&soon_});
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
    after.Take(job.name, job.lane, device->id, job.host_bytes);
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
      const std::string& holder = now_.holders.at(device.id);
      const bool leaves = std::find(leaving_.begin(), leaving_.end(), holder) != leaving_.end();
      absl::StrAppend(&holders, holders.empty() ? "" : ", ", device.id, ", which ", holder, " has",
                      leaves ? " and was asked to leave" : "");
    }
    if (holders.empty()) {
      Wait(job, v1::STATE_REASON_DEVICE_UNAVAILABLE,
           absl::StrCat("no device can run it now: ", WhyNone(snapshot_, job.device)));
    } else {
      Wait(job, v1::STATE_REASON_DEVICE_BUSY, absl::StrCat("waits for ", holders));
    }
  }

  void WaitForMemory(const QueuedJob& job) {
    if (waits_for_memory_ != nullptr) {
      return Wait(
          job, v1::STATE_REASON_HOST_MEMORY,
          absl::StrCat("waits behind ", waits_for_memory_->name, ", which waits for host memory"));
    }
    const int64_t reserved = std::max(now_.reserved_bytes, soon_.reserved_bytes);
    Wait(job, v1::STATE_REASON_HOST_MEMORY,
         absl::StrCat("needs ", FormatBytes(job.host_bytes), " of host memory; ",
                      FormatBytes(std::max<int64_t>(0, snapshot_.host_memory_bytes - reserved)),
                      " of ", FormatBytes(snapshot_.host_memory_bytes), " is not reserved"));
    waits_for_memory_ = &job;
  }

  const ScheduleSnapshot& snapshot_;
  std::map<std::string, int64_t> running_of_;  // by owner
  Holdings now_, soon_;
  std::vector<std::string> leaving_;  // running jobs that stop
  const QueuedJob* waits_for_memory_ = nullptr;
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
  return static_cast<int>(std::min<int64_t>(v1::PRIORITY_HIGH, priority + raised));
}

int64_t PreemptionPauseSeconds(int32_t preemptions) {
  constexpr int64_t kFirst = 30, kLongest = 600;
  const int doublings = std::clamp(preemptions - 1, 0, 8);
  return std::min(kLongest, kFirst << doublings);
}

}  // namespace penstock::server
