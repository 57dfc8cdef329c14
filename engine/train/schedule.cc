#include "engine/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock {

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
      return peak * (1 - (1 - floor) * progress);
    case ScheduleShape::kCosine:
      return peak * (floor + (1 - floor) * (1 + std::cos(std::numbers::pi * progress)) / 2);
  }
  return peak;
}

}  // namespace penstock
