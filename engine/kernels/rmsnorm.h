// RMSNorm.
//   forward    rstd[r] = 1 / sqrt(mean_c x[r,c]^2 + eps)      y[r,c] = x[r,c] * rstd[r] * w[c]
//   backward   n = x * rstd,  g = dy * w
//              dx[r,c] = rstd[r] * (g[r,c] - n[r,c] * mean_c(g * n))
//              dw[c]   = sum_r dy[r,c] * n[r,c]
// Shapes    x, y, dy, dx [rows, cols]; w, dw [cols]; rstd [rows], kept for the backward op.
// Numerics  sums over columns and over rows in f64; dw is f32.
// Aliasing  forward: y may be x. Backward: dx may be dy (then dx_mode is kOverwrite).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/kernels/context.h"

namespace penstock {

template <typename T>
struct RmsNormForwardArgs {
  const T* x;
  const T* w;
  T* y;
  float* rstd;
  int64_t rows, cols;
  float eps;
};

template <typename T>
struct RmsNormBackwardArgs {
  const T* dy;
  const T* x;
  const T* w;
  const float* rstd;
  T* dx;
  WriteMode dx_mode;
  float* dw;
  WriteMode dw_mode;
  int64_t rows, cols;
};

absl::Status RmsNormForward(const cpu::Context& context, const RmsNormForwardArgs<float>& args);
absl::Status RmsNormBackward(const cpu::Context& context, const RmsNormBackwardArgs<float>& args);

absl::Status RmsNormForward(const cuda::Context& context, const RmsNormForwardArgs<bf16>& args);
absl::Status RmsNormBackward(const cuda::Context& context, const RmsNormBackwardArgs<bf16>& args);

}  // namespace penstock
