// RMSNorm of heads on CUDA: a team of threads for each row and head, a part of a warp since a head
// is short. Each element is read and written by one thread alone, so outputs may lie over inputs.
#include <algorithm>
#include <type_traits>

#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/head_norm.h"
#include "engine/kernels/norm_backward_cuda.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock {
namespace {

using cuda::kWarp;

constexpr int kThreads = 256;

struct Place {
  int64_t row, head;
};

__device__ Place PlaceOf(int64_t pair, int64_t heads) { return {pair / heads, pair % heads}; }

// The team's thread number, which row and head is its, and where its elements begin: kCount of them
// every kCount * kTeam.
template <int kCount, int kTeam>
struct Team {
  int64_t pair = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kTeam;
  int64_t first = threadIdx.x % kTeam * kCount;
  static constexpr int64_t kStep = kCount * kTeam;
};

template <int kCount, int kTeam>
__global__ void HeadNormForwardKernel(const HeadNormForwardArgs<bf16> args) {
  const Team<kCount, kTeam> team;
  const bool inside = team.pair < args.rows * args.heads;
  const Place place = PlaceOf(inside ? team.pair : 0, args.heads);
  bf16* x = args.x + place.row * args.x_stride + place.head * args.head_dim;
  bf16* raw = args.raw + place.row * args.raw_stride + place.head * args.head_dim;
  const int64_t end = inside ? args.head_dim : 0;
  float values[kCount], weights[kCount];
  float sum = 0;
  for (int64_t i = team.first; i < end; i += team.kStep) {
    cuda::Load(x + i, values);
#pragma unroll
    for (int j = 0; j < kCount; ++j) sum += values[j] * values[j];
  }
  sum = cuda::TeamSum<kTeam>(sum);
  const float rstd = 1.0f / sqrtf(sum / static_cast<float>(args.head_dim) + args.eps);
  if (inside && team.first == 0) args.rstd[team.pair] = rstd;
  for (int64_t i = team.first; i < end; i += team.kStep) {
    cuda::Load(x + i, values);
    cuda::Load(args.w + i, weights);
    cuda::Store(values, raw + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) values[j] *= rstd * weights[j];
    cuda::Store(values, x + i);
  }
}

// Runs launch(count, team) with the elements that a thread moves at a time and the size of a team,
// as integral constants.
template <typename Launch>
void ForTeam(bool wide, int64_t head_dim, const Launch& launch) {
  using std::integral_constant;
  constexpr int kWide = cuda::kWide;
  if (!wide) {
    launch(integral_constant<int, 1>(), integral_constant<int, kWarp>());
  } else if (head_dim <= 8 * kWide) {
    launch(integral_constant<int, kWide>(), integral_constant<int, 8>());
  } else {
    launch(integral_constant<int, kWide>(), integral_constant<int, 16>());
  }
}

unsigned GridOf(int64_t pairs, int team) {
  const int64_t pairs_per_block = kThreads / team;
  return static_cast<unsigned>((pairs + pairs_per_block - 1) / pairs_per_block);
}

}  // namespace

absl::Status HeadNormForward(const cuda::Context& context, const HeadNormForwardArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(RequireSizes("HeadNormForward", {{"rows", args.rows},
                                                            {"heads", args.heads},
                                                            {"head_dim", args.head_dim},
                                                            {"x_stride", args.x_stride},
                                                            {"raw_stride", args.raw_stride}}));
  if (args.rows * args.heads == 0) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.x != nullptr && args.raw != nullptr && args.w != nullptr && args.rstd != nullptr,
              "HeadNormForward", "arrays x, raw, w and rstd"));
  const bool wide =
      cuda::AllowsWide({args.x, args.raw, args.w}, {args.x_stride, args.raw_stride, args.head_dim});
  ForTeam(wide, args.head_dim, [&](auto count, auto team) {
    HeadNormForwardKernel<count, team>
        <<<GridOf(args.rows * args.heads, team), kThreads, 0, context.stream>>>(args);
  });
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
  if (args.head_dim == 0) return absl::OkStatus();
  return cuda::NormBackward(context, "HeadNormBackward",
                            {.dy = args.dy,
                             .dy_stride = args.dy_stride,
                             .x = args.x,
                             .x_stride = args.x_stride,
                             .w = args.w,
                             .rstd = args.rstd,
                             .dx = args.dx,
                             .dx_stride = args.dx_stride,
                             .dx_mode = WriteMode::kOverwrite,
                             .count = args.rows * args.heads,
                             .rows_per_stride = std::max<int64_t>(1, args.heads),
                             .cols = args.head_dim},
                            args.dw, args.dw_mode);
}

}  // namespace penstock
