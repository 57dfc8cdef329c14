#include "server/worker/step_watchdog.h"

#include <algorithm>
#include <utility>

namespace penstock::server {

StepWatchdog::StepWatchdog(const WatchdogLimits& limits,
                           std::function<void(absl::Duration)> on_hang)
    : limits_(limits),
      on_hang_(std::move(on_hang)),
      last_beat_(Clock::now()),
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
  const Clock::time_point now = Clock::now();
  longest_ = std::max(longest_, Silent(now));
  last_beat_ = now;
}

void StepWatchdog::StepDone() {
  Beat();
  absl::MutexLock lock(&mutex_);
  has_step_ = true;
}

absl::Duration StepWatchdog::Silent(Clock::time_point now) const {
  return absl::FromChrono(now - last_beat_);
}

absl::Duration StepWatchdog::Limit() const {
  if (!has_step_) return limits_.first;
  return std::max(limits_.least, limits_.factor * longest_);
}

void StepWatchdog::Run() {
  absl::MutexLock lock(&mutex_);
  while (!stopping_) {
    const absl::Duration silent = Silent(Clock::now());
    const absl::Duration limit = Limit();
    if (silent >= limit) {
      on_hang_(silent);
      return;
    }
    mutex_.AwaitWithTimeout(absl::Condition(&stopping_), limit - silent);
  }
}

}  // namespace penstock::server
