// Which policy a job gets: the first of a short list of hand-written ones whose programs fit the
// device.
//
// On a GPU the list goes from the least traffic to the least device memory:
//   1. everything resident: weights, gradients and optimizer state, micro-batch by micro-batch
//   2. the same but for the state, which the host updates under the next step's forward pass
//   3. streamed, all micro-batches at a layer before the next, with as much saved as fits
//   4. the same with each layer's input saved in host memory
// All of them give the same bits, but for a tied head: rounds change the order in which its
// gradient and the embedding's are summed. On a given device a job has one answer, and a device
// with exactly the bytes of that answer gives it again. On the CPU, where the device is host memory
// as well, there is one policy: streamed, saving what the job says.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/plan/train_program.h"

namespace penstock {

struct PolicyChoiceArgs {
  ComputeBackend backend = ComputeBackend::kCpu;
  const ModelSpec& spec;
  const ModelLayout& layout;
  ProgramShape shape;                      // of a full step, without a budget
  SaveLevel save_level = SaveLevel::kAll;  // on a GPU: what is saved at most
  int64_t budget_bytes = INT64_MAX;        // for the device arena; on the CPU unlimited
};

struct PolicyChoice {
  Policy policy;
  std::string words;        // "streamed, all saved"
  int64_t arena_bytes = 0;  // of its largest program; likewise host_arena_bytes
  int64_t host_arena_bytes = 0;
  StepProgram train = {};  // of a full step
};

// ResourceExhausted / DEVICE_MEMORY_INSUFFICIENT with needed_bytes (of the last of the list) and
// usable_bytes, if none fits.
absl::StatusOr<PolicyChoice> ChoosePolicy(const PolicyChoiceArgs& args);

}  // namespace penstock
