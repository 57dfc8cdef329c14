#include "engine/kernels/adamw_scalars.h"

#include <cmath>

#include "engine/base/status.h"
#include "engine/kernels/contract.h"

namespace penstock::adamw {

absl::Status CheckContract(const AdamWArgs& args) {
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.count >= 0, "AdamW", "count >= 0", {{"count", args.count}}));
  const int gradients = (args.gradient != nullptr) + (args.gradient_bf16 != nullptr);
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.count == 0 || (args.hi != nullptr && args.lo != nullptr && args.m != nullptr &&
                                  args.v != nullptr && gradients == 1),
              "AdamW", "arrays hi, lo, m, v and one of gradient and gradient_bf16",
              {{"gradients", gradients}}));
  return Require(args.bias_correction1 > 0 && args.bias_correction2 > 0, "AdamW",
                 "bias corrections > 0 (updates are counted from 1)");
}

Scalars ToScalars(const AdamWArgs& args) {
  Scalars scalars{};
  scalars.gradient_scale = args.gradient_scale;
  scalars.keep = static_cast<float>(1.0 - args.learning_rate * args.weight_decay);
  const float lerp_weight = static_cast<float>(1.0 - args.beta1);
  scalars.m_base_is_gradient = lerp_weight >= 0.5f;
  scalars.m_weight = scalars.m_base_is_gradient ? lerp_weight - 1.0f : lerp_weight;
  scalars.beta2 = static_cast<float>(args.beta2);
  scalars.one_minus_beta2 = static_cast<float>(1.0 - args.beta2);
  scalars.minus_step_size = static_cast<float>(-(args.learning_rate / args.bias_correction1));
  scalars.sqrt_correction2 = static_cast<float>(std::sqrt(args.bias_correction2));
  scalars.epsilon = static_cast<float>(args.epsilon);
  return scalars;
}

}  // namespace penstock::adamw
