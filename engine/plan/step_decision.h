// What a finished backward pass leads to: a pure function, the same on every backend.
#pragma once

#include <cstdint>

namespace penstock {

enum class StepOutcome : uint8_t {
  kApplied,
  kSkippedNonFinite,  // loss or gradient norm is Inf or NaN: nothing changes
  kSkippedNoLabels,   // no position of the step has a label: nothing to learn, nothing changes
};

struct StepDecision {
  StepOutcome outcome = StepOutcome::kApplied;
  double grad_norm = 0;   // before clipping
  double clip_scale = 1;  // what gradients are multiplied by
};

// `sum_of_squares`: of all gradients of the mean loss over labelled tokens. max_grad_norm 0
// turns clipping off. Comparisons are written so that NaN never passes for small.
StepDecision DecideStep(double loss_sum, int64_t labelled_tokens, double sum_of_squares,
                        double max_grad_norm);

}  // namespace penstock
