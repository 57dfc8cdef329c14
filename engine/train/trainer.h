// Trainer: owns the parts of a running job (store, executor, programs, batches) and turns them
// into steps and evaluations. It decides no order and does no maths.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/batch.h"
#include "engine/engine.h"
#include "engine/exec/executor.h"
#include "engine/memory/host_store.h"
#include "engine/plan/simulate.h"
#include "engine/train/left_out_data.h"
#include "engine/train/save_order.h"
#include "engine/train/training_plan.h"

namespace penstock {

// Thread-compatible: one thread drives an instance.
class Trainer {
 public:
  // `store` holds the weights; not owned. `evaluation` may be null.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const TrainConfig& config,
                                                         const ModelInput& model,
                                                         const TrainingPlan& plan, HostStore& store,
                                                         std::shared_ptr<const Dataset> train,
                                                         std::shared_ptr<const Dataset> evaluation);

  int64_t total_steps() const { return total_steps_; }
  std::string notice() const { return executor_->notice(); }
  // Whether step `step` has all the plan's micro-batches: the last of an epoch may have fewer.
  bool IsFullStep(int64_t step) const {
    return train_stream_->ShapeOfStep(data_.DataStep(step)).micro_batches ==
           full_program_.micro_batches;
  }
  // Which data the steps from now on have; without it, step t has data step t.
  void set_data_cursor(DataCursor cursor) { data_ = std::move(cursor); }
  const BatchStream& train_stream() const { return *train_stream_; }
  bool can_evaluate() const { return evaluation_stream_ != nullptr; }

  std::vector<BlockId> update_order() const { return HostUpdateOrder(full_program_); }
  // Asked from now on before the store changes; null: nobody.
  void set_update_gate(UpdateGate* gate) { gate_ = gate; }

  // Runs step `step` (from 0). Its update may wait for the next step, and what the plan keeps on
  // the device is newer there than in the store: SettleStore() before the store is read.
  absl::StatusOr<StepRecord> Step(int64_t step);

  // What each lane did in the last step, as measured. Right after Step(): the executor keeps the
  // timeline of what it ran last.
  std::string TraceOfLastStep() const;

  // The rates under which the last step would have taken what it did; what it did not use is as
  // `known`. Right after Step().
  MachineProfile RatesOfLastStep(const MachineProfile& known) const;

  // Brings the store to the state after the last step.
  absl::Status SettleStore();
  // Of which step the store holds the state as it is, without asking the device for anything: the
  // last that Step() finished, or the one before it if that one's update waits. Nothing if an
  // update has been interrupted, or if the plan keeps state on the device.
  std::optional<int64_t> StepInStore() const;

  // Mean loss over the labelled tokens of the evaluation data, in order, at most
  // config.evaluation.max_tokens of it (rounded up to a micro-batch). Changes nothing.
  // `progress` is asked before each micro-batch; a status that is not OK ends the work with it.
  // REQUIRES: can_evaluate().
  absl::StatusOr<EvaluationRecord> Evaluate(
      int64_t step, absl::FunctionRef<absl::Status(double fraction)> progress);

 private:
  Trainer(const TrainConfig& config, const ModelInput& model, const TrainingPlan& plan,
          const HostStore& store)
      : config_(config), spec_(model.spec), cost_(CostOf(config, plan)), store_(store) {}
  absl::Status CreateStreams(const TrainingPlan& plan, std::shared_ptr<const Dataset> train,
                             std::shared_ptr<const Dataset> evaluation);
  absl::Status PreparePrograms(const ModelInput& model, const TrainingPlan& plan);
  const StepProgram& ProgramOfLastStep() const;
  std::vector<SimulatedOp> TimelineOfLastStep() const;
  // A program without micro-batches; nothing if it has no ops.
  absl::Status RunIfAny(const StepProgram& program);

  const TrainConfig config_;
  const ModelSpec spec_;
  const CostInput cost_;  // of a full step and of a shorter one
  const HostStore& store_;
  std::unique_ptr<BatchStream> train_stream_;
  std::unique_ptr<BatchStream> evaluation_stream_;
  DataCursor data_{0, 0, {}};
  int64_t total_steps_ = 0;

  std::unique_ptr<Executor> executor_;
  UpdateGate* gate_ = nullptr;
  StepProgram full_program_;  // plan.micro_batches of them
  StepProgram tail_program_;  // what the last step of an epoch has left; empty if nothing
  StepProgram evaluation_program_;
  StepProgram load_program_, settle_for_evaluation_, settle_store_;  // may have no ops
  int64_t steps_done_ = 0;                 // since the run's first, not this process's
  bool update_waits_ = false;              // of the last of them
  bool state_on_device_ = false;           // of some blocks, or their master weights alone
  std::vector<MicroBatchBuffer> buffers_;  // one a micro-batch of a step
  std::vector<MicroBatchView> views_;      // of buffers_
};

}  // namespace penstock
