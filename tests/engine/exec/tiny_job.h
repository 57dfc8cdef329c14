// A tiny model with random documents, run through programs of any policy: what executor tests
// compare. Everything is a function of the seeds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/exec/executor.h"
#include "engine/memory/host_store.h"
#include "engine/plan/policy.h"

namespace penstock {

struct TinyDocument {
  std::vector<int32_t> ids, labels;
};

// Lengths 1 to 13, each label ignored with probability 1/8, the last one always.
std::vector<TinyDocument> RandomDocuments(int count, uint64_t seed);

// How documents lie in micro-batches: each takes the first with room, `padding` tokens end each.
struct TinyCut {
  int64_t tokens_per_micro_batch = 0;
  int64_t padding = 0;
};

enum class Backend : uint8_t { kCpu, kCuda };

class TinyJob {
 public:
  struct Options {
    int64_t layers = 3;
    HeadWeights head = HeadWeights::kTiedToEmbedding;
    Policy policy = {};
    TinyCut cut{.tokens_per_micro_batch = 16};
    int threads = 1;
    Backend backend = Backend::kCpu;
    void (*adjust)(ModelSpec&) = nullptr;  // switches of another family
    std::optional<uint8_t> arena_fill = {};
    PageLock page_lock = PageLock::kRequired;
  };
  TinyJob(const Options& options, const std::vector<TinyDocument>& documents);

  // Runs program() `steps` times, then settles: the store holds everything. What the policy keeps
  // on the device has been loaded before.
  StepResult Run(int steps = 1);
  // Mean loss of the documents, without a change; after a settle program.
  double Evaluate();
  absl::StatusOr<StepResult> TryRun(const StepProgram& program);

  StepProgram& program() { return program_; }
  const StepProgram& evaluation() const { return evaluation_; }
  HostStore& store() { return *store_; }
  Executor& executor() { return *executor_; }
  OptimizerStep& optimizer() { return optimizer_; }

  std::vector<float> Weights() const;    // all blocks, joined
  std::vector<float> Gradients() const;  // as stored by the last run
  // Every byte of planes and moments.
  std::vector<uint8_t> State() const;

 private:
  struct Batch {
    std::vector<int32_t> ids, positions, labels, starts = {0};
  };
  void RunIfAny(const StepProgram& program);
  void CutDocuments(const TinyCut& cut, const std::vector<TinyDocument>& documents);

  std::unique_ptr<HostStore> store_;
  std::vector<Batch> batches_;
  std::vector<MicroBatchView> views_;
  int64_t labelled_tokens_ = 0;
  OptimizerStep optimizer_{.learning_rate = 1e-2,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .epsilon = 1e-8,
                           .weight_decay = 0.1,
                           .max_grad_norm = 1};
  StepProgram program_, load_, settle_, settle_for_evaluation_, evaluation_;
  bool loaded_ = false;
  std::unique_ptr<Executor> executor_;
};

}  // namespace penstock
