// Rotary embedding on CUDA: a thread turns kWidth neighbouring pairs of one head.
#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock {
namespace {

constexpr int kThreads = 256;

template <int kWidth>
__global__ void RopeKernel(const RopeArgs<bf16> args, int64_t work) {
  const int64_t half = args.head_dim / 2;
  const int64_t steps = half / kWidth;  // in a head
  const float sign = args.direction == RopeDirection::kForward ? 1.0f : -1.0f;
  for (int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x; item < work;
       item += int64_t{gridDim.x} * kThreads) {
    const int64_t i = item % steps * kWidth;
    const int64_t head = item / steps % args.heads;
    const int64_t row = item / steps / args.heads;
    const float* table = args.table + args.positions[row] * args.head_dim + i;
    bf16* first = args.x + row * args.stride + head * args.head_dim + i;
    float a[kWidth], b[kWidth];
    cuda::Load(first, a);
    cuda::Load(first + half, b);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float cosine = table[j], sine = sign * table[half + j];
      const float turned = a[j] * cosine - b[j] * sine;
      b[j] = b[j] * cosine + a[j] * sine;
      a[j] = turned;
    }
    cuda::Store(a, first);
    cuda::Store(b, first + half);
  }
}

}  // namespace

absl::Status Rope(const cuda::Context& context, const RopeArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(RequireSizes("Rope", {{"rows", args.rows},
                                                 {"heads", args.heads},
                                                 {"head_dim", args.head_dim},
                                                 {"stride", args.stride},
                                                 {"max_positions", args.max_positions}}));
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.head_dim % 2 == 0, "Rope", "an even head_dim", {{"head_dim", args.head_dim}}));
  const int64_t pairs = args.rows * args.heads * (args.head_dim / 2);
  if (pairs == 0) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.x != nullptr && args.positions != nullptr && args.table != nullptr, "Rope",
              "arrays x, positions and table"));
  if (cuda::AllowsWide({args.x}, {args.head_dim / 2, args.stride})) {
    const int64_t work = pairs / cuda::kWide;
    RopeKernel<cuda::kWide>
        <<<cuda::GridFor(work, kThreads), kThreads, 0, context.stream>>>(args, work);
  } else {
    RopeKernel<1><<<cuda::GridFor(pairs, kThreads), kThreads, 0, context.stream>>>(args, pairs);
  }
  return cuda::LaunchStatus("Rope");
}

}  // namespace penstock
