#include "server/jobs/device_use.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock::server {

double CountedSeconds(double seconds, int64_t half_life_seconds) {
  if (half_life_seconds <= 0 || seconds <= 0) return 0;
  // The integral of 2^(-age / half_life) over its length.
  const auto half_life = static_cast<double>(half_life_seconds);
  return -std::expm1(-std::numbers::ln2 * seconds / half_life) * half_life / std::numbers::ln2;
}

double DeviceUse::Fade(double seconds, absl::Duration age) const {
  // A clock that was set back makes nothing count more.
  const double half_lives =
      std::max(0.0, absl::ToDoubleSeconds(age)) / static_cast<double>(half_life_seconds_);
  return seconds * std::exp2(-half_lives);
}

void DeviceUse::Add(const DeviceUser& user, absl::Time end, double seconds) {
  if (half_life_seconds_ <= 0) return;
  Sum& sum = sums_[user];
  const absl::Time time = std::max(sum.time, end);
  sum.seconds = Fade(sum.seconds, time - sum.time) +
                Fade(CountedSeconds(seconds, half_life_seconds_), time - end);
  sum.time = time;
}

std::map<DeviceUser, double> DeviceUse::Counted(absl::Time now) const {
  std::map<DeviceUser, double> counted;
  for (const auto& [user, sum] : sums_) counted[user] = Fade(sum.seconds, now - sum.time);
  return counted;
}

}  // namespace penstock::server
