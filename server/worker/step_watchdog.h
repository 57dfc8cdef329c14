// Notices when a job on a GPU no longer gets on.
//
// A card that hangs completes no event, so the training thread waits for ever while the reporter's
// heartbeats go on and the daemon sees a living worker. The training thread beats here whenever it
// tells the observer anything, which it does at least once a step; a thread of its own calls
// `on_hang` when the next beat is far later than any before. Nothing can be rescued then but the
// process, so `on_hang` is expected to end it.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace penstock::server {

struct WatchdogLimits {
  // Until the first step is done: nobody knows yet how long one takes.
  absl::Duration first = absl::Hours(1);
  // Later: so many times the longest pause so far, but at least so long.
  double factor = 20;
  absl::Duration least = absl::Minutes(10);
};

class StepWatchdog {
 public:
  // `on_hang` gets the time since the last beat; called once, on the watchdog's thread.
  StepWatchdog(const WatchdogLimits& limits, std::function<void(absl::Duration)> on_hang);
  StepWatchdog(const StepWatchdog&) = delete;
  StepWatchdog& operator=(const StepWatchdog&) = delete;
  // Stops watching.
  ~StepWatchdog();

  // Any thread.
  void Beat();
  // A beat that says that a step is done.
  void StepDone();

 private:
  using Clock = std::chrono::steady_clock;  // a clock that is set does not make a card hang
  void Run();
  absl::Duration Silent(Clock::time_point now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration Limit() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const WatchdogLimits limits_;
  const std::function<void(absl::Duration)> on_hang_;
  absl::Mutex mutex_;
  Clock::time_point last_beat_ ABSL_GUARDED_BY(mutex_);
  absl::Duration longest_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  bool has_step_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace penstock::server
