// StepUpdates: which decision and which rates the update ops of a run apply.
//
// With Updates::kThisStep they are those of the run itself; with Updates::kPending those that the
// training program before it left. Used by one run at a time; what crosses lanes is ordered by
// the program, as ClipScale's hazards.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "engine/exec/executor.h"
#include "engine/exec/update_gate.h"
#include "engine/memory/host_store.h"
#include "engine/plan/step_program.h"

namespace penstock {

class StepUpdates {
 public:
  // Internal if the program fetches weights or loads state while an update is pending that it
  // does not apply: it would work with weights of the step before.
  absl::Status Begin(const StepProgram& program, UpdateGate* gate = nullptr);

  // To be called before an op changes planes or moments of the block in the store; waits, if the
  // run has a gate, until it may.
  void AskToChange(BlockId block) const {
    if (gate_ != nullptr) gate_->BeforeUpdate(block);
  }

  // ClipScale has decided.
  void Decide(const StepDecision& decision, const OptimizerStep& optimizer);

  // What update ops apply. Nothing changes if there is nothing to apply, the step was skipped, or
  // the rate is 0: w - 0 would turn a weight of -0 into +0.
  bool changes_weights() const {
    return applying_ && applying_->decision.outcome == StepOutcome::kApplied &&
           applying_->optimizer.learning_rate != 0;
  }
  const StepDecision& decision() const { return applying_->decision; }
  const OptimizerStep& optimizer() const { return applying_->optimizer; }

  // The run went well: counts the update that it applied.
  void End(HostStore& store);

  // Of this run's own gradients; default where it has none.
  const StepDecision& decided() const { return decided_; }

 private:
  struct Update {
    StepDecision decision;
    OptimizerStep optimizer;
  };
  Updates mode_ = Updates::kNone;
  UpdateGate* gate_ = nullptr;
  StepDecision decided_;
  std::optional<Update> applying_, pending_;
};

}  // namespace penstock
