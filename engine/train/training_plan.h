// What a training job will take and how its steps will run: a pure function of the job and the
// model, used at submit and again by the worker, which allocates exactly this.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/exec/executor.h"
#include "engine/plan/op_cost.h"
#include "engine/plan/search.h"
#include "engine/plan/train_program.h"
#include "engine/train/model_input.h"

namespace penstock {

struct TrainingPlan {
  Policy policy;
  int64_t rows_per_micro_batch = 0;
  int64_t micro_batches = 0;  // of a full step
  int threads = 0;
  ProgramShape shape;  // of a full step
  ExecutorOptions executor;
  // What stands between the trainer and its executor; tests let it fail. Empty: nothing.
  std::function<std::unique_ptr<Executor>(std::unique_ptr<Executor>)> wrap_executor = {};
  MemoryPlanSummary memory;
};

// Of the plan's host store.
GradientPlane GradientPlaneOf(const ModelSpec& spec, const TrainingPlan& plan);

// `data_bytes`: size of the training files, from which the number of rows is estimated.
// Unimplemented / FEATURE_UNSUPPORTED for a shape that the device's kernels do not have.
// DEVICE/HOST_MEMORY_INSUFFICIENT if it does not fit `usable`, with the change that would.
absl::StatusOr<TrainingPlan> MakeTrainingPlan(const TrainConfig& config, const ModelInput& model,
                                              int64_t data_bytes, const HostMemoryLimit& usable);
// The same for one of several that are tried: no way out is looked for if it does not fit.
absl::StatusOr<TrainingPlan> TryTrainingPlan(const TrainConfig& config, const ModelInput& model,
                                             int64_t data_bytes, const HostMemoryLimit& usable,
                                             SearchEffort& effort);

// How ops of the plan's steps are costed.
CostInput CostOf(const TrainConfig& config, const TrainingPlan& plan);

// config.host_memory_bytes, or what machine and cgroups leave, whichever is less.
HostMemoryLimit UsableHostMemory(const TrainConfig& config);

// Sum of the sizes of the job's data files. NotFound / DATA_INVALID naming the first that cannot
// be looked at.
absl::StatusOr<int64_t> DataFileBytes(const TrainConfig& config);

// The program of a step with `micro_batches` of at most the plan's number.
absl::StatusOr<StepProgram> TrainProgram(const ModelInput& model, const TrainingPlan& plan,
                                         int64_t micro_batches);
absl::StatusOr<StepProgram> EvaluationProgram(const ModelInput& model, const TrainingPlan& plan);
// Without ops where the plan keeps nothing on the device and leaves no update pending.
absl::StatusOr<StepProgram> LoadProgram(const ModelInput& model, const TrainingPlan& plan);
absl::StatusOr<StepProgram> SettleProgram(const ModelInput& model, const TrainingPlan& plan,
                                          SettleGoal goal);

}  // namespace penstock
