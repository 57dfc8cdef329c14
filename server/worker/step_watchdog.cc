#include "server/worker/step_watchdog.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace penstock::server {

StepWatchdog::StepWatchdog(const WatchdogLimits& limits,
                           std::function<void(absl::Duration)> on_hang)
    : limits_(limits),
      on_hang_(std::move(on_hang)),
      last_beat_(absl::Now()),
      thread_([this] { Run(); }) {}

StepWatchdog::~StepWatchdog() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void StepWatchdog::Beat() {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = absl::Now();
  longest_ = std::max(longest_, now - last_beat_);
  last_beat_ = now;
}

void StepWatchdog::StepDone() {
  Beat();
  absl::MutexLock lock(&mutex_);
  has_step_ = true;
}

absl::Duration StepWatchdog::Limit() const {
  if (!has_step_) return limits_.first;
  return std::max(limits_.least, limits_.factor * longest_);
}

void StepWatchdog::Run() {
  absl::MutexLock lock(&mutex_);
  while (!stopping_) {
    const absl::Duration silent = absl::Now() - last_beat_;
    const absl::Duration limit = Limit();
    if (silent >= limit) {
      on_hang_(silent);
      return;
    }
    mutex_.AwaitWithTimeout(absl::Condition(&stopping_), limit - silent);
  }
}

}  // namespace penstock::server
