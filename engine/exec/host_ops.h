// What executors share: AdamW over a block's arrays, wherever they are, and how a program's words
// map to the kernels'.
#pragma once

#include <cstdint>
#include <span>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/status.h"
#include "engine/exec/executor.h"
#include "engine/exec/step_updates.h"
#include "engine/kernels/adamw.h"
#include "engine/kernels/context.h"

namespace penstock {

// A block's arrays, all of its size, on the host or on a device, and what of them changes.
struct UpdateArrays {
  uint16_t* hi;
  int16_t* lo;
  float* m;  // with v null where moments are not fp32
  float* v;
  // The one that is not null.
  const float* gradient = nullptr;
  const bf16* gradient_bf16 = nullptr;
  UpdatePart part = UpdatePart::kAll;
};

// What AdamW is to do to a parameter of the arrays.
// REQUIRES: updates.changes_weights().
AdamWArgs ParameterUpdate(const Parameter& parameter, const UpdateArrays& arrays,
                          int64_t updates_applied, const StepUpdates& updates);

// AdamW on all parameters with what `updates` applies. Nothing if it changes no weights.
template <typename Context>
absl::Status UpdateParameters(Context& context, const BlockLayout& layout,
                              const UpdateArrays& arrays, int64_t updates_applied,
                              const StepUpdates& updates) {
  if (!updates.changes_weights()) return absl::OkStatus();
  absl::InlinedVector<AdamWArgs, 16> all;  // a layer's without an allocation
  for (const Parameter& parameter : layout.parameters) {
    all.push_back(ParameterUpdate(parameter, arrays, updates_applied, updates));
  }
  return AdamW(context, std::span<const AdamWArgs>(all));
}

// The same on the planes of the host store.
absl::Status UpdateBlock(const cpu::Context& context, HostStore& store, BlockId block,
                         UpdatePart part, const StepUpdates& updates);

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
