// Linear layer.
//   forward           y[r,o]  = sum_i x[r,i] * w[o,i]  + bias[o] + residual[r,o]
//   backward, input   dx[r,i] = sum_o dy[r,o] * w[o,i]
//   backward, weight  dw[o,i] = sum_r dy[r,o] * x[r,i]        dbias[o] = sum_r dy[r,o]
// Shapes    x, dx [rows, in]; y, dy, residual [rows, out]; w, dw [out, in] as Hugging Face
//           stores it; bias, dbias [out]. bias, residual and dbias may be null.
// Numerics  products are summed in f32, dbias in f64; gradients of parameters are always f32.
// Aliasing  residual may be y.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/kernels/context.h"

namespace penstock {

template <typename T>
struct LinearForwardArgs {
  const T* x;
  const T* w;
  const T* bias = nullptr;
  const T* residual = nullptr;
  T* y;
  int64_t rows, in, out;
};

template <typename T>
struct LinearBackwardInputArgs {
  const T* dy;
  const T* w;
  T* dx;
  int64_t rows, in, out;
  WriteMode mode;
};

template <typename T>
struct LinearBackwardWeightArgs {
  const T* dy;
  const T* x;
  float* dw;
  float* dbias = nullptr;
  int64_t rows, in, out;
  WriteMode mode;  // for dw and dbias
};

absl::Status LinearForward(const cpu::Context& context, const LinearForwardArgs<float>& args);
absl::Status LinearBackwardInput(const cpu::Context& context,
                                 const LinearBackwardInputArgs<float>& args);
absl::Status LinearBackwardWeight(const cpu::Context& context,
                                  const LinearBackwardWeightArgs<float>& args);

absl::Status LinearForward(const cuda::Context& context, const LinearForwardArgs<bf16>& args);
absl::Status LinearBackwardInput(const cuda::Context& context,
                                 const LinearBackwardInputArgs<bf16>& args);
absl::Status LinearBackwardWeight(const cuda::Context& context,
                                  const LinearBackwardWeightArgs<bf16>& args);

}  // namespace penstock
