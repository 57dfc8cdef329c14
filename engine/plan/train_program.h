// Writes step programs: a model, the shape of a step and a Policy in, a verified program out.
//
// Forward visits blocks 0..L+1 and backward L..1, so the last layers of the one are the first of
// the other: with S decoder slots, S of the step's 2L fetches are saved at the turn. A fetch goes
// to the slot whose block is needed again last. It is placed in the list right before its first
// use; as the copy-in lane waits for nothing but the hazards of its slot, it runs as early as the
// slot is free.
//
// At each block all micro-batches are visited before the next block, and a block's gradient sums
// leave for the host as soon as its last micro-batch is through.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/model/layout.h"
#include "engine/plan/policy.h"
#include "engine/plan/step_program.h"

namespace penstock {

struct ProgramShape {
  int32_t micro_batches = 1;
  int64_t tokens_per_micro_batch = 0;
  int64_t element_bytes = 4;         // of weights and activations on the device
  int64_t kernel_scratch_bytes = 0;  // what the backend's attention kernel needs
  int64_t arena_budget_bytes = 0;    // 0: as much as the program takes
};

// Forward, backward, norm, clip, update. ResourceExhausted / DEVICE_MEMORY_INSUFFICIENT with the
// bytes by class if the buffers exceed the budget.
absl::StatusOr<StepProgram> BuildTrainProgram(const ModelSpec& spec, const ModelLayout& layout,
                                              const Policy& policy, const ProgramShape& shape);

// Forward and loss only, over the micro-batches of `shape`; changes nothing on the host.
absl::StatusOr<StepProgram> BuildEvaluationProgram(const ModelSpec& spec, const ModelLayout& layout,
                                                   const Policy& policy, const ProgramShape& shape);

}  // namespace penstock
