#include "engine/exec/step_updates.h"

#include <utility>

#include "engine/base/status.h"

namespace penstock {

absl::Status StepUpdates::Begin(const StepProgram& program, UpdateGate* gate) {
  if (pending_ && program.updates != Updates::kPending) {
    return Error(absl::StatusCode::kInternal, reason::kInternal,
                 "the last step's update is pending; run the settle program first");
  }
  mode_ = program.updates;
  gate_ = gate;
  decided_ = {};
  applying_ = std::exchange(pending_, std::nullopt);
  return absl::OkStatus();
}

void StepUpdates::Decide(const StepDecision& decision, const OptimizerStep& optimizer) {
  decided_ = decision;
  (mode_ == Updates::kPending ? pending_ : applying_) = Update{decision, optimizer};
}

void StepUpdates::End(HostStore& store) {
  store.updating = false;
  if (applying_ && applying_->decision.outcome == StepOutcome::kApplied) ++store.updates_applied;
}

}  // namespace penstock
