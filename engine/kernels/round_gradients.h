// Gradient sums, kept in f32, become the bf16 gradients that leave for the optimizer.
//   out[i] = ToBf16(in[i])      (base/bf16.h: to nearest, ties to even)
//
// Shapes    in, out [count].
// Aliasing  out may be the memory of in, element i at byte 2i: then a block's sums shrink to half
//           their bytes where they lie, without a second buffer. No other overlap.
// Numerics  NaN stays NaN; which one is not promised.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/base/bf16.h"
#include "engine/kernels/context.h"

namespace penstock {

absl::Status RoundToBf16(const cpu::Context& context, const float* in, bf16* out, int64_t count);
absl::Status RoundToBf16(const cuda::Context& context, const float* in, bf16* out, int64_t count);

}  // namespace penstock
