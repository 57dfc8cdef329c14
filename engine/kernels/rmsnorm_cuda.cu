// RMSNorm on CUDA: one block a row, which reads the row twice, the second time from cache.
// Backward sums dw over rows first (column_sum_cuda.cuh), since dx may take the place of dy.
#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/column_sum_cuda.cuh"
#include "engine/kernels/contract.h"
#include "engine/kernels/rmsnorm.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock {
namespace {

using cuda::kWarp;
using cuda::kWide;

constexpr int kThreads = 256;

template <int kWidth>
__global__ void RmsNormForwardKernel(const RmsNormForwardArgs<bf16> args) {
  __shared__ float shared[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  const bf16* x = args.x + row * args.cols;
  bf16* y = args.y + row * args.cols;
  float sum = 0;
  for (int64_t col = threadIdx.x * kWidth; col < args.cols; col += kThreads * kWidth) {
    float values[kWidth];
    cuda::Load(x + col, values);
#pragma unroll
    for (const float value : values) sum += value * value;
  }
  sum = cuda::BlockSum(sum, shared);
  const float rstd = 1.0f / sqrtf(sum / static_cast<float>(args.cols) + args.eps);
  if (threadIdx.x == 0) args.rstd[row] = rstd;
  for (int64_t col = threadIdx.x * kWidth; col < args.cols; col += kThreads * kWidth) {
    float values[kWidth], weights[kWidth];
    cuda::Load(x + col, values);
    cuda::Load(args.w + col, weights);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] *= rstd * weights[i];
    cuda::Store(values, y + col);
  }
}

template <int kWidth>
__global__ void RmsNormBackwardKernel(const RmsNormBackwardArgs<bf16> args) {
  __shared__ float shared[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  const bf16* x = args.x + row * args.cols;
  const bf16* dy = args.dy + row * args.cols;
  bf16* dx = args.dx + row * args.cols;
  const float rstd = args.rstd[row];
  float sum = 0;
  float values[kWidth], gradients[kWidth], weights[kWidth];
  for (int64_t col = threadIdx.x * kWidth; col < args.cols; col += kThreads * kWidth) {
    cuda::Load(x + col, values);
    cuda::Load(dy + col, gradients);
    cuda::Load(args.w + col, weights);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum += gradients[i] * weights[i] * values[i] * rstd;
  }
  const float mean = cuda::BlockSum(sum, shared) / static_cast<float>(args.cols);
  const bool add = args.dx_mode == WriteMode::kAdd;
  for (int64_t col = threadIdx.x * kWidth; col < args.cols; col += kThreads * kWidth) {
    float out[kWidth] = {};
    cuda::Load(x + col, values);
    cuda::Load(dy + col, gradients);
    cuda::Load(args.w + col, weights);
    if (add) cuda::Load(dx + col, out);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      out[i] += rstd * (gradients[i] * weights[i] - values[i] * rstd * mean);
    }
    cuda::Store(out, dx + col);
  }
}

struct WeightTerm {
  const bf16* dy;
  const bf16* x;
  const float* rstd;
  int64_t cols;
  __device__ float operator()(int64_t row, int64_t col) const {
    const int64_t at = row * cols + col;
    return cuda::DeviceFloat(dy[at]) * cuda::DeviceFloat(x[at]) * rstd[row];
  }
};

}  // namespace

absl::Status RmsNormForward(const cuda::Context& context, const RmsNormForwardArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(
      RequireSizes("RmsNormForward", {{"rows", args.rows}, {"cols", args.cols}}));
  if (args.rows == 0) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.x != nullptr && args.w != nullptr && args.y != nullptr && args.rstd != nullptr,
              "RmsNormForward", "arrays x, w, y and rstd"));
  const unsigned grid = static_cast<unsigned>(args.rows);
  if (cuda::AllowsWide({args.x, args.w, args.y}, {args.cols})) {
    RmsNormForwardKernel<kWide><<<grid, kThreads, 0, context.stream>>>(args);
  } else {
    RmsNormForwardKernel<1><<<grid, kThreads, 0, context.stream>>>(args);
  }
  return cuda::LaunchStatus("RmsNormForward");
}

absl::Status RmsNormBackward(const cuda::Context& context, const RmsNormBackwardArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(
      RequireSizes("RmsNormBackward", {{"rows", args.rows}, {"cols", args.cols}}));
  PENSTOCK_RETURN_IF_ERROR(Require(
      args.dw != nullptr &&
          (args.rows == 0 || (args.dy != nullptr && args.x != nullptr && args.w != nullptr &&
                              args.dx != nullptr && args.rstd != nullptr)),
      "RmsNormBackward", "arrays dy, x, w, rstd, dx and dw"));
  PENSTOCK_RETURN_IF_ERROR(cuda::ColumnSum(context, "RmsNormBackward",
                                           WeightTerm{args.dy, args.x, args.rstd, args.cols},
                                           args.rows, args.cols, args.dw_mode, args.dw));
  if (args.rows == 0) return absl::OkStatus();
  const unsigned grid = static_cast<unsigned>(args.rows);
  if (cuda::AllowsWide({args.dy, args.x, args.w, args.dx}, {args.cols})) {
    RmsNormBackwardKernel<kWide><<<grid, kThreads, 0, context.stream>>>(args);
  } else {
    RmsNormBackwardKernel<1><<<grid, kThreads, 0, context.stream>>>(args);
  }
  return cuda::LaunchStatus("RmsNormBackward");
}

}  // namespace penstock
