// The flags that say how a step runs, and the policy that they describe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "bench/flags.h"
#include "engine/memory/page_lock.h"
#include "engine/model/model_spec.h"
#include "engine/plan/policy.h"

namespace penstock {

struct StepFlags {
  std::string geometry = "qwen2.5-0.5b";
  int64_t layers = 0;  // of the geometry's, for a machine that cannot hold them all; 0: all
  int64_t micro_batches = 1, micro_batch_tokens = 16384, sequence_length = 1024, steps = 4;
  int64_t threads = 0;  // 0: all cores

  std::string save = "input";         // all, attention, input
  std::string save_place = "device";  // device, host
  std::string update = "next";  // under the next step's forward; next_moments_later; end; backward
  std::string gradients = "bf16";  // bf16, fp32
  std::string moments = "fp32";    // bf16, int8_blocks: then no block's state is on the device
  int64_t round = 0;               // micro-batches a round, 0: all
  int64_t first_round = 0;         // micro-batches of the first round, 0: as the others
  std::string first_save = "all";  // what it saves on the device, with first_round
  // Its layers, from the last, that save everything, and from the first, that save on the host.
  int64_t first_save_all_layers = 0, first_host_layers = 0;
  int64_t slots = 2, head_chunk_rows = 2048, mlp_chunk_rows = 0;
  // Decoder layers, from the first, whose weights, gradient sums or optimizer state stay on the
  // device. `device_state` counts blocks: the embedding is the first, the head the last.
  // Of the next `device_master` blocks the master weights stay without their moments, which come
  // for updates: with next_moments_later and more device_gradients than the head's number.
  int64_t device_weights = 0, device_gradients = 0, device_state = 0, device_master = 0;
  // Layers, from the last, that save everything whatever `save` says.
  int64_t save_all_layers = 0;
  // Layers, from the first, that save their input and attention side on the host, or their input.
  int64_t host_attention_layers = 0, host_input_layers = 0;
  double device_cap_gib = 0;           // 0: none
  std::string page_lock = "required";  // preferred, off

  // The policy is the planner's, as a job would have it, and of the flags above only chunk rows,
  // gradients, moments, slots, update=backward and the cap count.
  bool search = false;
  bool plan_only = false;  // prints what the policy takes and runs nothing; needs no GPU
  // What the step is predicted for, and policies are searched for: a profile's name, or the path of
  // one that was measured (`penstock calibrate --profile`), which ends in .json. Empty: the card
  // that runs; with plan_only h100-80gb-pcie5.
  std::string machine;

  std::string commit = "unknown", date = "unknown";
};

// For programs that have flags of their own beside these.
FlagTables TablesOf(StepFlags& flags);
// InvalidArgument if no step could be made of them.
absl::Status CheckStepFlags(const StepFlags& flags);

// The command line of a program that has only these flags.
absl::StatusOr<StepFlags> ParseStepFlags(int argc, char** argv);

// InvalidArgument if there is no such geometry, or it has fewer layers.
absl::StatusOr<ModelSpec> SpecOf(const StepFlags& flags);
absl::StatusOr<PageLock> PageLockOf(const StepFlags& flags);
absl::StatusOr<Policy> PolicyOf(const StepFlags& flags, const ModelSpec& spec);

}  // namespace penstock
