// AdamW on split weights: one update of `count` elements.
//   g = gradient_scale * gradient
//   w = w * (1 - learning_rate * weight_decay)
//   m = m + (1 - beta1) * (g - m)
//   v = beta2 * v + (1 - beta2) * g * g
//   w = w - (learning_rate / bias_correction1) * m / (sqrt(v) / sqrt(bias_correction2) + epsilon)
// where w is the fp32 value that the planes hold (memory/planes.h), joined before and split
// after. The order of operations and every rounding are those of torch.optim.AdamW on CPU in
// fp32: scalars are combined in f64 and rounded once to f32, arrays are computed in f32.
//
// Decay spares norms and biases: the caller passes those ranges with weight_decay = 0.
//
// Gradients are f32 or bf16; one in bf16 gives the bits that its f32 value gives.
//
// UpdatePart::kWeights changes hi and lo alone and kMoments, which does not read them, m and v
// alone; kMoments after kWeights gives the bits of kAll. A device does not know kMoments.
//
// Shapes    hi, lo, m, v, gradient [count].
// Numerics  the same bits with every CpuIsa and on CUDA; which NaN comes out of two is not
//           promised, only that one does.
// Needs     no alignment of the pointers; CUDA is at its best with 16 bytes.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/base/bf16.h"
#include "engine/kernels/context.h"
#include "engine/kernels/cpu_isa.h"
#include "engine/plan/update_part.h"

namespace penstock {

struct AdamWArgs {
  uint16_t* hi;
  int16_t* lo;
  float* m;
  float* v;
  // The one that is not null.
  const float* gradient = nullptr;
  const bf16* gradient_bf16 = nullptr;
  int64_t count;
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  float gradient_scale;     // clipping and averaging; 1 for none
  double bias_correction1;  // 1 - beta1^t, t = 1 for the first update
  double bias_correction2;  // 1 - beta2^t
  UpdatePart part = UpdatePart::kAll;
};

absl::Status AdamW(const cpu::Context& context, const AdamWArgs& args);
absl::Status AdamW(const cuda::Context& context, const AdamWArgs& args);

// Several, of arrays that share nothing: the threads are called together once.
absl::Status AdamW(const cpu::Context& context, std::span<const AdamWArgs> updates);
absl::Status AdamW(const cuda::Context& context, std::span<const AdamWArgs> updates);

// The same with a given instruction set, for tests and benchmarks.
// REQUIRES: the machine has it (isa <= BestCpuIsa()).
absl::Status AdamW(const cpu::Context& context, const AdamWArgs& args, CpuIsa isa);

}  // namespace penstock
