// How many calls a user may make: a bucket that fills at a steady rate and gives one token a call.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace penstock::server {

struct RateBucket {
  double tokens = 0;
  absl::Time time;  // when it held them
};
struct RateAnswer {
  RateBucket bucket;
  // When to call again; zero: the call is let in.
  absl::Duration wait;
};
// One call at `now`. A bucket that is not there yet is full: `burst` calls may come at once. A
// clock that goes back fills nothing and takes nothing.
RateAnswer TakeCall(const std::optional<RateBucket>& before, absl::Time now, double per_second,
                    double burst);

// The buckets of all users. Thread-safe.
class RateLimiter {
 public:
  static constexpr double kBurstSeconds = 10;
  // 0: any number of calls.
  explicit RateLimiter(int32_t per_second) : per_second_(per_second) {}
  // As RateAnswer.wait.
  absl::Duration Take(const std::string& user, absl::Time now);

 private:
  const int32_t per_second_;
  std::mutex mutex_;
  std::map<std::string, RateBucket> buckets_;  // guarded by mutex_; users are few
};

}  // namespace penstock::server
