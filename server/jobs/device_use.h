// How long each user's jobs have had devices of late, which the order of the queue goes by
// (queue_order.h). A second counts half when it is one half-life ago, a quarter after two, and so
// on; nothing is forgotten at once, and a user who uses nothing is soon as good as new.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "penstock/v1/device.pb.h"

namespace penstock::server {

// GPUs and the CPU are counted apart: an hour of one is not an hour of the other.
struct DeviceUser {
  std::string owner;
  v1::DeviceKind kind = v1::DEVICE_KIND_CPU;
  friend auto operator<=>(const DeviceUser&, const DeviceUser&) = default;
};

// What of a use that lasted so long and ends now counts, in seconds.
double CountedSeconds(double seconds, int64_t half_life_seconds);

class DeviceUse {
 public:
  // 0: nothing counts.
  explicit DeviceUse(int64_t half_life_seconds) : half_life_seconds_(half_life_seconds) {}

  int64_t half_life_seconds() const { return half_life_seconds_; }
  // A use that has ended.
  void Add(const DeviceUser& user, absl::Time end, double seconds);
  // What of all uses that have ended counts now, in seconds.
  std::map<DeviceUser, double> Counted(absl::Time now) const;

 private:
  struct Sum {
    double seconds = 0;  // as it counted at `time`
    absl::Time time = absl::UnixEpoch();
  };
  double Fade(double seconds, absl::Duration age) const;

  int64_t half_life_seconds_;
  std::map<DeviceUser, Sum> sums_;
};

}  // namespace penstock::server
