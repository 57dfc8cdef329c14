// Runs whole optimizer steps over a reference case, the way a job does: import into the planes,
// a planned and verified program, the CPU executor with its lanes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/exec/executor.h"
#include "engine/memory/host_store.h"
#include "engine/plan/policy.h"
#include "engine/plan/step_program.h"
#include "tests/engine/nn/reference_case.h"

namespace penstock {

using TensorMap = std::map<std::string, std::vector<float>>;  // by parameter name

// How the same step is cut and carried out.
struct StepVariant {
  // Documents go, whole and in order, into the first micro-batch that has room; what is left of
  // one is padding.
  int64_t tokens_per_micro_batch = 0;
  Policy policy;
  int threads = 1;
};
std::ostream& operator<<(std::ostream& out, const StepVariant& variant);

class StepRun {
 public:
  // `epsilon` of the optimizer; the other hyper-parameters are the case's.
  static absl::StatusOr<std::unique_ptr<StepRun>> Create(const ReferenceCase& reference,
                                                         const StepVariant& variant,
                                                         double epsilon);

  absl::StatusOr<StepResult> Step();

  // Of the last step, before clipping.
  TensorMap Gradients() const;
  TensorMap Weights() const;
  int64_t micro_batches() const { return static_cast<int64_t>(batches_.size()); }

 private:
  struct MicroBatch {
    std::vector<int32_t> ids, positions, labels;
    std::vector<int32_t> document_starts = {0};
    int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  };

  StepRun() = default;
  absl::Status CutIntoMicroBatches(const ReferenceCase& reference, int64_t capacity);
  absl::Status BuildExecutor(const StepVariant& variant);

  std::unique_ptr<HostStore> store_;
  std::vector<MicroBatch> batches_;
  std::vector<MicroBatchView> views_;
  int64_t labelled_tokens_ = 0;
  OptimizerStep optimizer_;
  ModelSpec spec_;
  StepProgram program_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace penstock
