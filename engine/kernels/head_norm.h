// RMSNorm over each attention head, for the q and k of families that have it. The maths is
// rmsnorm.h's with one weight vector for all heads:
//   forward    rstd[r,h] = 1 / sqrt(mean_i x[r,h,i]^2 + eps)
//              raw[r,h,i] = x[r,h,i]        x[r,h,i] = x[r,h,i] * rstd[r,h] * w[i]
//   backward   dx as in rmsnorm.h with one (r,h) for one row, x being forward's raw;
//              dw[i]     = sum_r sum_h dy[r,h,i] * x[r,h,i] * rstd[r,h]
// Shapes    a tensor is a view: element (r,h,i) lies at r * stride + h * head_dim + i, so q or k
//           is normalised where it lies in the fused q,k,v activation. w, dw [head_dim];
//           rstd [rows, heads].
// Numerics  sums in f64; dw is f32.
// Aliasing  forward writes over x, so that q, k and v keep one layout, and none else. Backward: dx
//           may be dy (same stride).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/kernels/context.h"

namespace penstock {

template <typename T>
struct HeadNormForwardArgs {
  T* x;
  int64_t x_stride;  // elements between rows, >= heads * head_dim
  T* raw;
  int64_t raw_stride;
  const T* w;
  float* rstd;
  int64_t rows, heads, head_dim;
  float eps;
};

template <typename T>
struct HeadNormBackwardArgs {
  const T* dy;
  int64_t dy_stride;
  const T* x;
  int64_t x_stride;
  const T* w;
  const float* rstd;
  T* dx;  // overwritten
  int64_t dx_stride;
  float* dw;
  WriteMode dw_mode;
  int64_t rows, heads, head_dim;
};

absl::Status HeadNormForward(const cpu::Context& context, const HeadNormForwardArgs<float>& args);
absl::Status HeadNormBackward(const cpu::Context& context, const HeadNormBackwardArgs<float>& args);

absl::Status HeadNormForward(const cuda::Context& context, const HeadNormForwardArgs<bf16>& args);
absl::Status HeadNormBackward(const cuda::Context& context, const HeadNormBackwardArgs<bf16>& args);

}  // namespace penstock
