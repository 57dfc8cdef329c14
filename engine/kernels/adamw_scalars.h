// What AdamW's backends share: the contract's check and the numbers that are the same for every
// element. Internal to adamw*; the contract is adamw.h's.
#pragma once

#include "absl/status/status.h"
#include "engine/kernels/adamw.h"

namespace penstock::adamw {

// torch multiplies arrays by scalars that it combined in f64 and rounded once; so do these.
struct Scalars {
  float gradient_scale;
  float keep;  // 1 - learning_rate * weight_decay
  // m = base + m_weight * (g - m), base being m or, where torch's lerp changes its form
  // (1 - beta1 >= 0.5), g.
  float m_weight;
  bool m_base_is_gradient;
  float beta2;
  float one_minus_beta2;
  float minus_step_size;  // -learning_rate / bias_correction1
  float sqrt_correction2;
  float epsilon;
};

absl::Status CheckContract(const AdamWArgs& args);
Scalars ToScalars(const AdamWArgs& args);

}  // namespace penstock::adamw
