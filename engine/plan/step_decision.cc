#include "engine/plan/step_decision.h"

#include <cmath>

namespace penstock {

StepDecision DecideStep(double loss_sum, int64_t labelled_tokens, double sum_of_squares,
                        double max_grad_norm) {
  StepDecision decision;
  decision.grad_norm = std::sqrt(sum_of_squares);
  if (labelled_tokens == 0) {
    decision.outcome = StepOutcome::kSkippedNoLabels;
  } else if (!std::isfinite(decision.grad_norm) || !std::isfinite(loss_sum)) {
    decision.outcome = StepOutcome::kSkippedNonFinite;
  } else if (max_grad_norm > 0 && decision.grad_norm > max_grad_norm) {
    decision.clip_scale = max_grad_norm / decision.grad_norm;
  }
  return decision;
}

}  // namespace penstock
