// Writes step programs: a model, the shape of a step and a Policy in, a verified program out.
//
// A step goes through its rounds; a round visits blocks 0..L+1 forward and L..1 backward, and at
// each block all micro-batches of the round. So the last layers of the one pass are the first of
// the other, and a fetch goes to the slot whose block is needed again last. Fetches stand in the
// list right before their first use; as the copy-in lane waits for nothing but the hazards of a
// slot, they run as early as the slot is free.
//
// With UpdateTime::kNextStep a program begins with the update of the step before: device blocks
// first, then the host's in the order in which forward needs them. With kNextStepMomentsLater the
// host's moments follow the weights of all blocks. A block's gradients leave for the host as soon
// as its last micro-batch of the last round is through, and moments of blocks whose master weights
// alone are on the device come where they lay.
//
// Programs of one policy and shape may follow each other on one executor: what is held on the
// device has one place in all of them. The order: load, then training programs, with a settle
// program before the next evaluation and before the host store is read.
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
// bytes by class if the buffers exceed the budget; InvalidArgument for a policy that contradicts
// itself or the model.
absl::StatusOr<StepProgram> BuildTrainProgram(const ModelSpec& spec, const ModelLayout& layout,
                                              const Policy& policy, const ProgramShape& shape);

// The same ops and buffers, neither ordered (DeriveOrder) nor verified: for a search that builds
// many programs and runs none.
absl::StatusOr<StepProgram> DraftTrainProgram(const ModelSpec& spec, const ModelLayout& layout,
                                              const Policy& policy, const ProgramShape& shape);

// Forward and loss only, over the micro-batches of `shape`; changes nothing on the host.
absl::StatusOr<StepProgram> BuildEvaluationProgram(const ModelSpec& spec, const ModelLayout& layout,
                                                   const Policy& policy, const ProgramShape& shape);

// Brings to the device what the policy holds there. To run once, before the first step, without
// micro-batches. No ops if there is nothing.
absl::StatusOr<StepProgram> BuildLoadProgram(const ModelSpec& spec, const ModelLayout& layout,
                                             const Policy& policy, const ProgramShape& shape);

enum class SettleGoal : uint8_t {
  kEvaluate,   // device weights are those of the last step
  kReadStore,  // and the host store holds everything
};
// Applies the update that the last training program left pending, if any. Without micro-batches.
// No ops if the policy leaves nothing to do.
absl::StatusOr<StepProgram> BuildSettleProgram(const ModelSpec& spec, const ModelLayout& layout,
                                               const Policy& policy, const ProgramShape& shape,
                                               SettleGoal goal);

}  // namespace penstock
