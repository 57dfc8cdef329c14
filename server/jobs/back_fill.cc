#include "server/jobs/back_fill.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace penstock::server {
namespace {

// Before anybody has left: also those stay who will have left at once.
constexpr int64_t kNow = -1;

// Those who may stay for any time stay.
bool StaysAfter(const Occupant& occupant, int64_t seconds) {
  return !occupant.seconds_left || *occupant.seconds_left > seconds;
}

bool FitsBeside(const QueuedJob& job, int64_t reserved_bytes, const ScheduleSnapshot& snapshot) {
  return job.host_bytes <= snapshot.host_memory_bytes - reserved_bytes;
}

// Whether a device that the job can run on is free after so many seconds, if nothing else starts.
bool HasDeviceAfter(int64_t seconds, const QueuedJob& job, const Holdings& holdings,
                    const ScheduleSnapshot& snapshot) {
  const auto stays = [&](const Occupant* occupant) {
    return occupant != nullptr && StaysAfter(*occupant, seconds);
  };
  if (job.lane == Lane::kExport) return !stays(holdings.ExportHolder());
  return std::any_of(snapshot.devices.begin(), snapshot.devices.end(),
                     [&](const ScheduleDevice& device) {
                       return CanRunOn(job.device, device) && !stays(holdings.HolderOf(device.id));
                     });
}

bool HasPlaceAfter(int64_t seconds, const QueuedJob& job, const Holdings& holdings,
                   const ScheduleSnapshot& snapshot) {
  int64_t reserved_bytes = 0;
  for (const Occupant& occupant : holdings.occupants()) {
    if (StaysAfter(occupant, seconds)) reserved_bytes += occupant.host_bytes;
  }
  return FitsBeside(job, reserved_bytes, snapshot) &&
         HasDeviceAfter(seconds, job, holdings, snapshot);
}

// Whether the job could have what the occupant has of devices.
bool CouldTakeItsPlace(const QueuedJob& job, const Occupant& occupant,
                       const ScheduleSnapshot& snapshot) {
  if (job.lane != occupant.lane) return false;
  if (job.lane == Lane::kExport) return true;
  return std::any_of(snapshot.devices.begin(), snapshot.devices.end(),
                     [&](const ScheduleDevice& device) {
                       return device.id == occupant.device && CanRunOn(job.device, device);
                     });
}

// The most memory that can be taken, whoever leaves first, at a time when the job has a device.
int64_t MostReservedBytes(const QueuedJob& job, const Holdings& holdings,
                          const ScheduleSnapshot& snapshot) {
  int64_t least_given_back = holdings.reserved_bytes();
  for (const Occupant& occupant : holdings.occupants()) {
    if (!CouldTakeItsPlace(job, occupant, snapshot)) continue;
    least_given_back = std::min(least_given_back, occupant.host_bytes);
  }
  const bool has_device = HasDeviceAfter(kNow, job, holdings, snapshot);
  return holdings.reserved_bytes() - (has_device ? 0 : least_given_back);
}

}  // namespace

void Holdings::Take(Occupant occupant) {
  reserved_bytes_ += occupant.host_bytes;
  occupants_.push_back(std::move(occupant));
}

void Holdings::GiveBack(const std::string& job) {
  std::erase_if(occupants_, [&](const Occupant& occupant) {
    if (occupant.job != job) return false;
    reserved_bytes_ -= occupant.host_bytes;
    return true;
  });
}

const Occupant* Holdings::HolderOf(const std::string& device) const {
  for (const Occupant& occupant : occupants_) {
    if (occupant.lane == Lane::kDevice && occupant.device == device) return &occupant;
  }
  return nullptr;
}

const Occupant* Holdings::ExportHolder() const {
  for (const Occupant& occupant : occupants_) {
    if (occupant.lane == Lane::kExport) return &occupant;
  }
  return nullptr;
}

std::optional<EarliestStart> FindEarliestStart(const QueuedJob& job, const Holdings& holdings,
                                               const ScheduleSnapshot& snapshot) {
  if (HasPlaceAfter(kNow, job, holdings, snapshot)) return EarliestStart{};
  std::vector<const Occupant*> ends;
  for (const Occupant& occupant : holdings.occupants()) {
    if (occupant.seconds_left) ends.push_back(&occupant);
  }
  std::sort(ends.begin(), ends.end(), [](const Occupant* a, const Occupant* b) {
    return std::tie(*a->seconds_left, a->job) < std::tie(*b->seconds_left, b->job);
  });
  for (const Occupant* end : ends) {
    if (HasPlaceAfter(*end->seconds_left, job, holdings, snapshot)) {
      return EarliestStart{.seconds = *end->seconds_left, .after = end->job};
    }
  }
  return std::nullopt;
}

bool WouldDelay(const QueuedJob& waiting, const Holdings& before, const Holdings& after,
                const ScheduleSnapshot& snapshot) {
  const std::optional<EarliestStart> start = FindEarliestStart(waiting, before, snapshot);
  if (!start) {
    const Occupant& started = after.occupants().back();
    return CouldTakeItsPlace(waiting, started, snapshot) ||
           !FitsBeside(waiting, MostReservedBytes(waiting, before, snapshot) + started.host_bytes,
                       snapshot);
  }
  const std::optional<EarliestStart> later = FindEarliestStart(waiting, after, snapshot);
  return !later || later->seconds > start->seconds;
}

}  // namespace penstock::server
