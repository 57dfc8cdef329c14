#pragma once

#include <cstdint>

#include "engine/engine.h"

namespace penstock {

// Learning rate of step `step` (from 0) of `total_steps`. A function of the step's number alone:
// micro-batches and skipped steps do not move it.
//   warm-up   peak * (step + 1) / warmup_steps while step < warmup_steps
//   after it, with p = (step - warmup_steps) / (total_steps - warmup_steps):
//   constant  peak
//   linear    peak * (1 - (1 - final_fraction) * p)
//   cosine    peak * (final_fraction + (1 - final_fraction) * (1 + cos(pi p)) / 2)
//   warm-up, stable, decay (arXiv 2404.06395)   peak until `decay_steps` before the end (a tenth of
//             total_steps if that is 0, no more than there are after the warm-up), then linear with
//             p = the part of these that is done
//   inverse square root (arXiv 1706.03762)   peak * sqrt(warmup_steps / (step + 1))
double LearningRate(const ScheduleConfig& schedule, double peak, int64_t total_steps, int64_t step);

}  // namespace penstock
