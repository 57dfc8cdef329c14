// The order of the queue: by rank, within a rank by fair share, a user's own jobs by age.
//
// Fair share: first comes the oldest job of the user who has used least device time of late, of the
// kind of device that it needs. Each job that takes its place is counted as used for as long as it
// will probably run, so that users with many jobs take turns with those who have few.
//
// Nobody is passed for ever, whatever others have used: ranks rise with age, and those that have
// risen above PRIORITY_HIGH go by age alone. With aging off, what others use brings a user who
// waits to the front, as that user's own use fades; but no time is promised then.
#pragma once

#include <string>
#include <vector>

#include "server/jobs/schedule.h"

namespace penstock::server {

struct QueuePlace {
  const QueuedJob* job = nullptr;
  // Which newer jobs come first by fair share, and why; empty if none do.
  std::string passed = {};
};
std::vector<QueuePlace> QueueOrder(const ScheduleSnapshot& snapshot);

}  // namespace penstock::server
