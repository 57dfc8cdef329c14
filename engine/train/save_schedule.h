// When a run saves by itself. Time comes from the caller.
#pragma once

#include <chrono>
#include <cstdint>

#include "engine/engine.h"

namespace penstock {

class SaveSchedule {
 public:
  using Clock = std::chrono::steady_clock;
  // A save that failed is tried again after this much, if none is due before.
  static constexpr std::chrono::seconds kRetry{60};

  SaveSchedule(const CheckpointConfig& config, Clock::time_point start)
      : config_(config), last_(start) {}

  // Whether to save after step `step`, now that it is done.
  bool Due(int64_t step, Clock::time_point now) const {
    return IsMultiple(step, config_.every_steps) || IsMultiple(step, config_.keep_every_steps) ||
           (config_.every_seconds > 0 &&
            now - last_ >= std::chrono::seconds(config_.every_seconds)) ||
           (failed_ && now - last_ >= kRetry);
  }

  void Saved(Clock::time_point now) {
    last_ = now;
    failed_ = false;
  }
  void Failed(Clock::time_point now) {
    last_ = now;
    failed_ = true;
  }

 private:
  static bool IsMultiple(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

  const CheckpointConfig config_;
  Clock::time_point last_;  // end of the last try
  bool failed_ = false;     // whether that one did
};

}  // namespace penstock
