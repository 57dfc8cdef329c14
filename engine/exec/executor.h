// An executor runs step programs. It decides nothing: what happens, in which order and where is
// in the program; the numbers are in the input.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/exec/update_gate.h"
#include "engine/memory/host_store.h"
#include "engine/memory/page_lock.h"
#include "engine/nn/decoder.h"
#include "engine/plan/step_decision.h"
#include "engine/plan/step_program.h"

namespace penstock {

// AdamW with decoupled decay on parameters of two and more dimensions.
struct OptimizerStep {
  double learning_rate = 0;
  double beta1 = 0, beta2 = 0, epsilon = 0;
  double weight_decay = 0;
  double max_grad_norm = 0;    // 0: no clipping
  uint64_t rounding_seed = 0;  // of moments that are not fp32
};

struct StepInput {
  std::span<const MicroBatchView> micro_batches;  // as many as the program has
  int64_t labelled_tokens = 0;                    // of all of them: the loss's denominator
  OptimizerStep optimizer = {};
  UpdateGate* gate = nullptr;  // asked, if there is one, before the host store changes
};

struct StepResult {
  double loss_sum = 0;  // over labelled tokens
  int64_t labelled_tokens = 0;
  // Of this run's gradients, whether they have been applied or wait for the next run; default for
  // programs that do not train.
  StepDecision decision;
  std::array<double, kLaneCount> busy_seconds = {};
};

// When an op ran, in nanoseconds since its Run began.
struct OpTime {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;

  // Verifies the program and reserves what running it takes; afterwards Run allocates nothing.
  // ResourceExhausted if the program's arena is larger than the executor's.
  virtual absl::Status Prepare(const StepProgram& program) = 0;

  // Runs a program to its end. One with Updates::kPending first applies what the last training
  // program left (nothing, if none ran); after that one, only such a program may run. The first
  // failure stops it: lanes finish the op they are in and
  // the status of that failure, with the op's text, is returned; the host store may then hold
  // some blocks updated and others not. Internal if the labels counted in the batches differ
  // from `input.labelled_tokens`; nothing has been updated then.
  // REQUIRES: Prepare(program) was ok, and the program lies where it lay then; one caller at a
  // time.
  virtual absl::Status Run(const StepProgram& program, const StepInput& input,
                           StepResult& result) = 0;

  // The measured timeline of the last Run, by op.
  virtual std::span<const OpTime> timeline() const = 0;

  // What the user is to know before the first step; empty: nothing.
  virtual std::string notice() const { return {}; }
};

struct ExecutorOptions {
  int64_t tokens_per_micro_batch = 0;
  int64_t max_positions = 0;  // longest document window
  int64_t head_chunk_rows = 0;
  int64_t mlp_chunk_rows = 0;    // as the policy says
  int64_t arena_bytes = 0;       // the largest of the programs to be prepared
  int64_t host_arena_bytes = 0;  // likewise
  // If set, what every byte of the arenas is when the executor begins. No result depends on it:
  // tests set it to find a kernel that reads what nobody wrote.
  std::optional<uint8_t> arena_fill = {};
  PageLock page_lock = PageLock::kRequired;  // of the store and the host arena, for a GPU
  int threads = 1;  // of the host lane and, on the CPU, separately of the compute lane
};

// `store` is not owned and outlives the executor.
absl::StatusOr<std::unique_ptr<Executor>> CreateCpuExecutor(const ModelSpec& spec, HostStore& store,
                                                            const ExecutorOptions& options);

// On the current GPU: bf16 weights and activations, so programs have element_bytes 2 and, as
// kernel_scratch_bytes, CudaKernelScratchBytes (nn/kernel_scratch.h). Locks the store's pages as
// page_lock says; no bit of a result depends on that.
// Unavailable without a device, Unimplemented in a build without CUDA or on a card without bf16.
absl::StatusOr<std::unique_ptr<Executor>> CreateCudaExecutor(const ModelSpec& spec,
                                                             HostStore& store,
                                                             const ExecutorOptions& options);

// What planning needs to know of the CPU backend: host memory beside arena and store: tables and
// thread stacks.
int64_t CpuExecutorOverheadBytes(const ModelSpec& spec, const ExecutorOptions& options);

}  // namespace penstock
