#include "engine/exec/host_ops.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/kernels/adamw.h"

namespace penstock {

absl::Status UpdateBlock(const cpu::Context& context, HostStore& store, BlockId block_id,
                         const OptimizerStep& optimizer, const StepDecision& decision) {
  // At rate 0 the optimizer is left out: w - 0 would turn a weight of -0 into +0, and a job at
  // rate 0 must not change a bit.
  if (decision.outcome != StepOutcome::kApplied || optimizer.learning_rate == 0) {
    return absl::OkStatus();
  }
  const double t = static_cast<double>(store.updates_applied + 1);
  BlockStore& block = store.block(block_id);
  for (const Parameter& parameter : store.layout().blocks[Index(block_id)].parameters) {
    const int64_t at = parameter.offset;
    PENSTOCK_RETURN_IF_ERROR(AdamW(
        context, {.hi = block.hi.data() + at,
                  .lo = block.lo.data() + at,
                  .m = block.m.data() + at,
                  .v = block.v.data() + at,
                  .gradient = block.gradient.data() + at,
                  .count = parameter.size,
                  .learning_rate = optimizer.learning_rate,
                  .beta1 = optimizer.beta1,
                  .beta2 = optimizer.beta2,
                  .epsilon = optimizer.epsilon,
                  .weight_decay = parameter.decay == Decay::kApply ? optimizer.weight_decay : 0.0,
                  .gradient_scale = static_cast<float>(decision.clip_scale),
                  .bias_correction1 = 1 - std::pow(optimizer.beta1, t),
                  .bias_correction2 = 1 - std::pow(optimizer.beta2, t)}));
  }
  return absl::OkStatus();
}

absl::Status CheckLabelCount(int64_t counted, int64_t expected) {
  if (counted == expected) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, reason::kInternal,
               absl::StrCat("the loss counted ", counted, " labelled tokens, the loader ", expected,
                            "; the step was stopped"));
}

bool UpdatesHost(const StepProgram& program) {
  return !program.ops.empty() && std::holds_alternative<UpdateHost>(program.ops.back().body);
}

}  // namespace penstock
