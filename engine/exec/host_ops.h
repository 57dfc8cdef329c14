// What executors share: AdamW over a block's arrays, wherever they are, and how a program's words
// map to the kernels'.
#pragma once

#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/status.h"
#include "engine/exec/executor.h"
#include "engine/exec/step_updates.h"
#include "engine/kernels/adamw.h"
#include "engine/kernels/context.h"

namespace penstock {

// A block's arrays, all of its size, on the host or on a device.
struct UpdateArrays {
  uint16_t* hi;
  int16_t* lo;
  float* m;
  float* v;
  // The one that is not null.
  const float* gradient = nullptr;
  const bf16* gradient_bf16 = nullptr;
};

// AdamW, parameter by parameter, with what `updates` applies. Nothing if it changes no weights.
template <typename Context>
absl::Status UpdateParameters(Context& context, const BlockLayout& layout,
                              const UpdateArrays& arrays, int64_t updates_applied,
                              const StepUpdates& updates) {
  if (!updates.changes_weights()) return absl::OkStatus();
  const OptimizerStep& optimizer = updates.optimizer();
  const double t = static_cast<double>(updates_applied + 1);
  for (const Parameter& parameter : layout.parameters) {
    const int64_t at = parameter.offset;
    PENSTOCK_RETURN_IF_ERROR(AdamW(
        context,
        AdamWArgs{
            .hi = arrays.hi + at,
            .lo = arrays.lo + at,
            .m = arrays.m + at,
            .v = arrays.v + at,
            .gradient = arrays.gradient == nullptr ? nullptr : arrays.gradient + at,
            .gradient_bf16 = arrays.gradient_bf16 == nullptr ? nullptr : arrays.gradient_bf16 + at,
            .count = parameter.size,
            .learning_rate = optimizer.learning_rate,
            .beta1 = optimizer.beta1,
            .beta2 = optimizer.beta2,
            .epsilon = optimizer.epsilon,
            .weight_decay = parameter.decay == Decay::kApply ? optimizer.weight_decay : 0.0,
            .gradient_scale = static_cast<float>(updates.decision().clip_scale),
            .bias_correction1 = 1 - std::pow(optimizer.beta1, t),
            .bias_correction2 = 1 - std::pow(optimizer.beta2, t)}));
  }
  return absl::OkStatus();
}

// The same on the planes of the host store.
absl::Status UpdateBlock(const cpu::Context& context, HostStore& store, BlockId block,
                         const StepUpdates& updates);

// The same with gradients that pass through a buffer and whose sum of squares is given:
// FailedPrecondition / NON_FINITE, before anything of the block changes, if that is not finite.
absl::Status UpdateBlockFrom(const cpu::Context& context, HostStore& store, BlockId block,
                             const std::byte* gradients, GradientType type, double sum_of_squares,
                             const StepUpdates& updates);

// DecideUnclipped's decision. Internal if the step clips.
absl::StatusOr<StepDecision> DecideBeforeNorm(double loss_sum, int64_t labelled_tokens,
                                              const OptimizerStep& optimizer);

// Internal unless the loss counted as many labels as the loader.
absl::Status CheckLabelCount(int64_t counted, int64_t expected);

// Prepare's part that no backend differs in: the program verifies, fits the arenas, and its
// gradients are of the type for which the store has a plane.
absl::Status CheckProgram(const StepProgram& program, int64_t arena_bytes, int64_t host_arena_bytes,
                          const HostStore& store);

inline WriteMode ToWriteMode(Accumulate accumulate) {
  return accumulate == Accumulate::kAdd ? WriteMode::kAdd : WriteMode::kOverwrite;
}

inline int64_t RopeTableBytes(const ModelSpec& spec, int64_t positions) {
  return positions * spec.head_dim * static_cast<int64_t>(sizeof(float));
}

}  // namespace penstock
