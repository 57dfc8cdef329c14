#include "client/patience.h"

#include <algorithm>

namespace penstock::client {

void Patience::Renew() {
  last_ = absl::Now();
  pause_ = absl::Milliseconds(100);
}

bool Patience::Wait() {
  if (absl::Now() - last_ >= limit_) return false;
  absl::SleepFor(pause_);
  pause_ = std::min(pause_ * 2, absl::Seconds(2));
  return true;
}

}  // namespace penstock::client
