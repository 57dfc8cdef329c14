// RMSNorm of heads on CUDA: one warp a row and head, since a head is short.
#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/column_sum_cuda.cuh"
#include "engine/kernels/contract.h"
#include "engine/kernels/head_norm.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock {
namespace {

using cuda::kWarp;

constexpr int kWarps = 8;

struct Place {
  int64_t row, head;
};

__device__ Place PlaceOf(int64_t pair, int64_t heads) { return {pair / heads, pair % heads}; }

__global__ void HeadNormForwardKernel(const HeadNormForwardArgs<bf16> args) {
  const int64_t pair = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (pair >= args.rows * args.heads) return;
  const int lane = threadIdx.x % kWarp;
  const Place place = PlaceOf(pair, args.heads);
  const bf16* x = args.x + place.row * args.x_stride + place.head * args.head_dim;
  bf16* y = args.y + place.row * args.y_stride + place.head * args.head_dim;
  float sum = 0;
  for (int64_t i = lane; i < args.head_dim; i += kWarp) {
    const float value = cuda::DeviceFloat(x[i]);
    sum += value * value;
  }
  sum = cuda::WarpSum(sum);
  const float rstd = 1.0f / sqrtf(sum / static_cast<float>(args.head_dim) + args.eps);
  if (lane == 0) args.rstd[pair] = rstd;
  for (int64_t i = lane; i < args.head_dim; i += kWarp) {
    y[i] = cuda::DeviceBf16(cuda::DeviceFloat(x[i]) * rstd * cuda::DeviceFloat(args.w[i]));
  }
}

__global__ void HeadNormBackwardKernel(const HeadNormBackwardArgs<bf16> args) {
  const int64_t pair = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (pair >= args.rows * args.heads) return;
  const int lane = threadIdx.x % kWarp;
  const Place place = PlaceOf(pair, args.heads);
  const bf16* x = args.x + place.row * args.x_stride + place.head * args.head_dim;
  const bf16* dy = args.dy + place.row * args.dy_stride + place.head * args.head_dim;
  bf16* dx = args.dx + place.row * args.dx_stride + place.head * args.head_dim;
  const float rstd = args.rstd[pair];
  float sum = 0;
  for (int64_t i = lane; i < args.head_dim; i += kWarp) {
    sum += cuda::DeviceFloat(dy[i]) * cuda::DeviceFloat(args.w[i]) * cuda::DeviceFloat(x[i]) * rstd;
  }
  const float mean = cuda::WarpSum(sum) / static_cast<float>(args.head_dim);
  for (int64_t i = lane; i < args.head_dim; i += kWarp) {
    const float gradient = cuda::DeviceFloat(dy[i]) * cuda::DeviceFloat(args.w[i]);
    dx[i] = cuda::DeviceBf16(rstd * (gradient - cuda::DeviceFloat(x[i]) * rstd * mean));
  }
}

// Rows and heads count as the rows of the sum.
struct WeightTerm {
  const bf16* dy;
  int64_t dy_stride;
  const bf16* x;
  int64_t x_stride;
  const float* rstd;
  int64_t heads, head_dim;
  __device__ float operator()(int64_t pair, int64_t i) const {
    const Place place = PlaceOf(pair, heads);
    const int64_t at = place.head * head_dim + i;
    return cuda::DeviceFloat(dy[place.row * dy_stride + at]) *
           cuda::DeviceFloat(x[place.row * x_stride + at]) * rstd[pair];
  }
};

unsigned GridOf(int64_t rows, int64_t heads) {
  return static_cast<unsigned>((rows * heads + kWarps - 1) / kWarps);
}

}  // namespace

absl::Status HeadNormForward(const cuda::Context& context, const HeadNormForwardArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(RequireSizes("HeadNormForward", {{"rows", args.rows},
                                                            {"heads", args.heads},
                                                            {"head_dim", args.head_dim},
                                                            {"x_stride", args.x_stride},
                                                            {"y_stride", args.y_stride}}));
  if (args.rows * args.heads == 0) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.x != nullptr && args.w != nullptr && args.y != nullptr && args.rstd != nullptr,
              "HeadNormForward", "arrays x, w, y and rstd"));
  HeadNormForwardKernel<<<GridOf(args.rows, args.heads), kWarps * kWarp, 0, context.stream>>>(args);
  return cuda::LaunchStatus("HeadNormForward");
}

absl::Status HeadNormBackward(const cuda::Context& context,
                              const HeadNormBackwardArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(RequireSizes("HeadNormBackward", {{"rows", args.rows},
                                                             {"heads", args.heads},
                                                             {"head_dim", args.head_dim},
                                                             {"x_stride", args.x_stride},
                                                             {"dy_stride", args.dy_stride},
                                                             {"dx_stride", args.dx_stride}}));
  PENSTOCK_RETURN_IF_ERROR(Require(
      args.dw != nullptr &&
          (args.rows == 0 || (args.dy != nullptr && args.x != nullptr && args.w != nullptr &&
                              args.dx != nullptr && args.rstd != nullptr)),
      "HeadNormBackward", "arrays dy, x, w, rstd, dx and dw"));
  const WeightTerm term{args.dy,   args.dy_stride, args.x,       args.x_stride,
                        args.rstd, args.heads,     args.head_dim};
  PENSTOCK_RETURN_IF_ERROR(cuda::ColumnSum(context, "HeadNormBackward", term,
                                           args.rows * args.heads, args.head_dim, args.dw_mode,
                                           args.dw));
  if (args.rows * args.heads == 0) return absl::OkStatus();
  HeadNormBackwardKernel<<<GridOf(args.rows, args.heads), kWarps * kWarp, 0, context.stream>>>(
      args);
  return cuda::LaunchStatus("HeadNormBackward");
}

}  // namespace penstock
