#include "engine/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock {
namespace {

// Of a rate that falls linearly to `floor`; 1 where `progress` is 0.
double Falling(double progress, double floor) { return 1 - (1 - floor) * progress; }

// How much of the decay is done; 0 before it begins.
double DecayDone(const ScheduleConfig& schedule, int64_t total_steps, int64_t step) {
  const int64_t wanted = schedule.decay_steps > 0 ? schedule.decay_steps : (total_steps + 9) / 10;
  const int64_t steps = std::min(wanted, total_steps - schedule.warmup_steps);
  const int64_t done = step - (total_steps - steps);
  return done <= 0 ? 0 : static_cast<double>(done) / static_cast<double>(steps);
}

}  // namespace

double LearningRate(const ScheduleConfig& schedule, double peak, int64_t total_steps,
                    int64_t step) {
  if (step < schedule.warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  }
  const int64_t decay_steps = std::max<int64_t>(1, total_steps - schedule.warmup_steps);
  const double progress =
      static_cast<double>(step - schedule.warmup_steps) / static_cast<double>(decay_steps);
  const double floor = schedule.final_fraction;
  switch (schedule.shape) {
    case ScheduleShape::kConstant:
      return peak;
    case ScheduleShape::kLinear:
      return peak * Falling(progress, floor);
    case ScheduleShape::kCosine:
      return peak * (floor + (1 - floor) * (1 + std::cos(std::numbers::pi * progress)) / 2);
    case ScheduleShape::kWarmupStableDecay:
      return peak * Falling(DecayDone(schedule, total_steps, step), floor);
    case ScheduleShape::kInverseSqrt:
      return peak *
             std::sqrt(static_cast<double>(schedule.warmup_steps) / static_cast<double>(step + 1));
  }
  return peak;
}

}  // namespace penstock
