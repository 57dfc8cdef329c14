// Sum of squares, for gradient norms: f64, in one fixed order for a given count. Elements in bf16
// give the bits that their f32 values give. NaN and Inf come through, so a step that is not finite
// shows in its norm; the square of a finite f32 does not overflow f64.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/base/bf16.h"
#include "engine/kernels/context.h"

namespace penstock {

// REQUIRES: count >= 0.
double SumOfSquares(const cpu::Context& context, const float* x, int64_t count);
double SumOfSquares(const cpu::Context& context, const bf16* x, int64_t count);
// CUDA: adds to *sum, on the device; f64 as well.
absl::Status SumOfSquares(const cuda::Context& context, const float* x, int64_t count, double* sum);
absl::Status SumOfSquares(const cuda::Context& context, const bf16* x, int64_t count, double* sum);

}  // namespace penstock
