#include "server/access/rate_limit.h"

#include <algorithm>

namespace penstock::server {

RateAnswer TakeCall(const std::optional<RateBucket>& before, absl::Time now, double per_second,
                    double burst) {
  RateBucket bucket = before.value_or(RateBucket{.tokens = burst, .time = now});
  const double passed = std::max(0.0, absl::ToDoubleSeconds(now - bucket.time));
  bucket.tokens = std::min(burst, bucket.tokens + passed * per_second);
  bucket.time = now;
  if (bucket.tokens >= 1) {
    bucket.tokens -= 1;
    return {bucket, absl::ZeroDuration()};
  }
  return {bucket, absl::Seconds((1 - bucket.tokens) / per_second)};
}

absl::Duration RateLimiter::Take(const std::string& user, absl::Time now) {
  if (per_second_ == 0) return absl::ZeroDuration();
  std::lock_guard lock(mutex_);
  const auto found = buckets_.find(user);
  const auto before = found == buckets_.end() ? std::nullopt : std::optional(found->second);
  const RateAnswer answer = TakeCall(before, now, per_second_, per_second_ * kBurstSeconds);
  buckets_[user] = answer.bucket;
  return answer.wait;
}

}  // namespace penstock::server
