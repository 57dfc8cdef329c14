// Who has what, until when, and whether a job may start before one that comes first and waits.
//
// A job that waits holds a claim on its earliest start: the first time at which, by what is known
// of how long those run that run now, it has the device and the memory it needs. A later job starts
// before it only if that time stays what it was. Of some jobs nobody knows how long they run. One
// that would start then counts as never ending; and if the claim hangs on the end of one, which may
// come at any moment, a later job may take nothing that the claim could need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/jobs/schedule.h"

namespace penstock::server {

// Something that has a device or host memory.
struct Occupant {
  std::string job;
  Lane lane = Lane::kDevice;
  std::string device;  // empty for exports
  int64_t host_bytes = 0;
  std::optional<int64_t> seconds_left = {};  // nobody knows
};

class Holdings {
 public:
  void Take(Occupant occupant);
  void GiveBack(const std::string& job);

  int64_t reserved_bytes() const { return reserved_bytes_; }
  // Null: nobody has it.
  const Occupant* HolderOf(const std::string& device) const;
  const Occupant* ExportHolder() const;
  const std::vector<Occupant>& occupants() const { return occupants_; }

 private:
  std::vector<Occupant> occupants_;  // few: there is one a device
  int64_t reserved_bytes_ = 0;
};

struct EarliestStart {
  int64_t seconds = 0;  // from now
  std::string after;    // the job that ends then
};
// Nothing if it hangs on a job of which nobody knows the end.
std::optional<EarliestStart> FindEarliestStart(const QueuedJob& job, const Holdings& holdings,
                                               const ScheduleSnapshot& snapshot);

// Whether `waiting` might start later if the last occupant of `after` starts now beside the others,
// who are those of `before`.
bool WouldDelay(const QueuedJob& waiting, const Holdings& before, const Holdings& after,
                const ScheduleSnapshot& snapshot);

}  // namespace penstock::server
