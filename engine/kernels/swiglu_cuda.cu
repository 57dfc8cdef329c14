// SwiGLU on CUDA: a thread takes kWidth neighbouring columns of a row.
#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/swiglu.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock {
namespace {

constexpr int kThreads = 256;

// Within 2 ulp, and 0 or 1 where exp overflows.
__device__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <int kWidth>
__global__ void SwigluForwardKernel(const SwigluForwardArgs<bf16> args, int64_t work) {
  const int64_t steps = args.intermediate / kWidth;
  for (int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x; item < work;
       item += int64_t{gridDim.x} * kThreads) {
    const int64_t row = item / steps, col = item % steps * kWidth;
    const bf16* gate_at = args.gate_up + row * 2 * args.intermediate + col;
    float gate[kWidth], up[kWidth];
    cuda::Load(gate_at, gate);
    cuda::Load(gate_at + args.intermediate, up);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) up[i] *= gate[i] * Sigmoid(gate[i]);
    cuda::Store(up, args.y + row * args.intermediate + col);
  }
}

template <int kWidth>
__global__ void SwigluBackwardKernel(const SwigluBackwardArgs<bf16> args, int64_t work) {
  const int64_t steps = args.intermediate / kWidth;
  for (int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x; item < work;
       item += int64_t{gridDim.x} * kThreads) {
    const int64_t row = item / steps, col = item % steps * kWidth;
    const int64_t at = row * 2 * args.intermediate + col;
    const int64_t product_at = row * args.intermediate + col;
    float gate[kWidth], up[kWidth], dy[kWidth], product[kWidth];
    cuda::Load(args.gate_up + at, gate);
    cuda::Load(args.gate_up + at + args.intermediate, up);
    cuda::Load(args.dy + product_at, dy);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float g = gate[i], sigmoid = Sigmoid(g);
      product[i] = up[i] * (g * sigmoid);
      gate[i] = dy[i] * up[i] * sigmoid * (1.0f + g * (1.0f - sigmoid));
      up[i] = dy[i] * g * sigmoid;
    }
    cuda::Store(product, args.product + product_at);
    cuda::Store(gate, args.d_gate_up + at);
    cuda::Store(up, args.d_gate_up + at + args.intermediate);
  }
}

}  // namespace

absl::Status SwigluForward(const cuda::Context& context, const SwigluForwardArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(
      RequireSizes("SwigluForward", {{"rows", args.rows}, {"intermediate", args.intermediate}}));
  const int64_t count = args.rows * args.intermediate;
  if (count == 0) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(Require(args.gate_up != nullptr && args.y != nullptr, "SwigluForward",
                                   "arrays gate_up and y"));
  if (cuda::AllowsWide({args.gate_up, args.y}, {args.intermediate})) {
    const int64_t work = count / cuda::kWide;
    SwigluForwardKernel<cuda::kWide>
        <<<cuda::GridFor(work, kThreads), kThreads, 0, context.stream>>>(args, work);
  } else {
    SwigluForwardKernel<1>
        <<<cuda::GridFor(count, kThreads), kThreads, 0, context.stream>>>(args, count);
  }
  return cuda::LaunchStatus("SwigluForward");
}

absl::Status SwigluBackward(const cuda::Context& context, const SwigluBackwardArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(
      RequireSizes("SwigluBackward", {{"rows", args.rows}, {"intermediate", args.intermediate}}));
  const int64_t count = args.rows * args.intermediate;
  if (count == 0) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(Require(args.gate_up != nullptr && args.dy != nullptr &&
                                       args.product != nullptr && args.d_gate_up != nullptr,
                                   "SwigluBackward", "arrays gate_up, dy, product and d_gate_up"));
  if (cuda::AllowsWide({args.gate_up, args.dy, args.product, args.d_gate_up},
                       {args.intermediate})) {
    const int64_t work = count / cuda::kWide;
    SwigluBackwardKernel<cuda::kWide>
        <<<cuda::GridFor(work, kThreads), kThreads, 0, context.stream>>>(args, work);
  } else {
    SwigluBackwardKernel<1>
        <<<cuda::GridFor(count, kThreads), kThreads, 0, context.stream>>>(args, count);
  }
  return cuda::LaunchStatus("SwigluBackward");
}

}  // namespace penstock
