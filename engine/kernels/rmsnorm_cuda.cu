// RMSNorm on CUDA. Forward: one block a row, which reads the row twice, the second time from cache.
#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/norm_backward_cuda.h"
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
  if (args.cols == 0) return absl::OkStatus();
  return cuda::NormBackward(context, "RmsNormBackward",
                            {.dy = args.dy,
                             .dy_stride = args.cols,
                             .x = args.x,
                             .x_stride = args.cols,
                             .w = args.w,
                             .rstd = args.rstd,
                             .dx = args.dx,
                             .dx_stride = args.cols,
                             .dx_mode = args.dx_mode,
                             .count = args.rows,
                             .rows_per_stride = 1,
                             .cols = args.cols},
                            args.dw, args.dw_mode);
}

}  // namespace penstock
