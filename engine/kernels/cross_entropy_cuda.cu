// Cross-entropy on CUDA: one block a row reads it twice, first for the maximum and the sum of
// exponentials together (each thread rescales its sum when its maximum grows), then for the
// gradient. Row losses go to the workspace, and one block adds them in a fixed order.
#include <math_constants.h>

#include "engine/base/labels.h"
#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/cross_entropy.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock {
namespace {

using cuda::kWarp;

constexpr int kThreads = 512;

// sum of exp(x - max) over some logits; max is -Inf for none.
struct SoftmaxSum {
  float max, sum;
};

__device__ SoftmaxSum Merge(SoftmaxSum a, SoftmaxSum b) {
  const float max = fmaxf(a.max, b.max);
  if (max == -CUDART_INF_F) return {max, a.sum + b.sum};
  return {max, a.sum * expf(a.max - max) + b.sum * expf(b.max - max)};
}

__device__ SoftmaxSum BlockMerge(SoftmaxSum value, SoftmaxSum* shared) {
#pragma unroll
  for (int width = kWarp / 2; width >= 1; width /= 2) {
    value = Merge(value, {__shfl_xor_sync(0xffffffffu, value.max, width),
                          __shfl_xor_sync(0xffffffffu, value.sum, width)});
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  SoftmaxSum total = shared[0];
  for (int i = 1; i < kThreads / kWarp; ++i) total = Merge(total, shared[i]);
  __syncthreads();
  return total;
}

template <int kWidth>
__device__ SoftmaxSum SumOfRow(const bf16* logits, int64_t vocab, SoftmaxSum* shared) {
  SoftmaxSum own{-CUDART_INF_F, 0};
  for (int64_t col = threadIdx.x * kWidth; col < vocab; col += kThreads * kWidth) {
    float values[kWidth];
    cuda::Load(logits + col, values);
    float max = values[0];
#pragma unroll
    for (int i = 1; i < kWidth; ++i) max = fmaxf(max, values[i]);
    SoftmaxSum part{max, 0};
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      part.sum += max == -CUDART_INF_F ? 0.0f : expf(values[i] - max);
    }
    own = Merge(own, part);
  }
  return BlockMerge(own, shared);
}

template <int kWidth>
__global__ void CrossEntropyKernel(const CrossEntropyArgs<bf16> args, double* losses) {
  __shared__ SoftmaxSum shared[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  bf16* logits = args.logits + row * args.vocab;
  const int32_t label = args.labels[row];
  const bool gradient = args.mode == CrossEntropyMode::kLossAndGradient;
  if (label == kIgnoreLabel) {
    if (threadIdx.x == 0) losses[row] = 0;
    if (!gradient) return;
    constexpr float kZeros[kWidth] = {};
    for (int64_t col = threadIdx.x * kWidth; col < args.vocab; col += kThreads * kWidth) {
      cuda::Store(kZeros, logits + col);
    }
    return;
  }
  const SoftmaxSum total = SumOfRow<kWidth>(logits, args.vocab, shared);
  if (threadIdx.x == 0) {
    losses[row] = static_cast<double>(total.max) + log(static_cast<double>(total.sum)) -
                  cuda::DeviceFloat(logits[label]);
  }
  if (!gradient) return;
  __syncthreads();  // thread 0 has read the label's logit
  const float factor = args.scale / total.sum;
  for (int64_t col = threadIdx.x * kWidth; col < args.vocab; col += kThreads * kWidth) {
    float values[kWidth];
    cuda::Load(logits + col, values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      values[i] = factor * expf(values[i] - total.max) - (col + i == label ? args.scale : 0.0f);
    }
    cuda::Store(values, logits + col);
  }
}

__global__ void CrossEntropyFinishKernel(const double* losses, const int32_t* labels, int64_t rows,
                                         double* loss_sum, int64_t* labelled_tokens) {
  __shared__ double shared_loss[kThreads / kWarp];
  __shared__ int64_t shared_count[kThreads / kWarp];
  double loss = 0;
  int64_t count = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kThreads) {
    loss += losses[row];
    count += labels[row] == kIgnoreLabel ? 0 : 1;
  }
  loss = cuda::BlockSum(loss, shared_loss);
  count = cuda::BlockSum(count, shared_count);
  if (threadIdx.x != 0) return;
  *loss_sum += loss;
  *labelled_tokens += count;
}

}  // namespace

absl::Status CrossEntropy(const cuda::Context& context, const CrossEntropyArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(
      RequireSizes("CrossEntropy", {{"rows", args.rows}, {"vocab", args.vocab}}));
  PENSTOCK_RETURN_IF_ERROR(Require(
      args.vocab >= 1 &&
          args.rows * static_cast<int64_t>(sizeof(double)) <= context.workspace_bytes,
      "CrossEntropy", "a vocabulary and a workspace of one f64 a row",
      {{"vocab", args.vocab}, {"rows", args.rows}, {"workspace_bytes", context.workspace_bytes}}));
  if (args.rows == 0) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(Require(args.logits != nullptr && args.labels != nullptr &&
                                       args.loss_sum != nullptr && args.labelled_tokens != nullptr,
                                   "CrossEntropy",
                                   "arrays logits, labels, loss_sum and labelled_tokens"));
  double* losses = reinterpret_cast<double*>(context.workspace);
  const unsigned grid = static_cast<unsigned>(args.rows);
  if (cuda::AllowsWide({args.logits}, {args.vocab})) {
    CrossEntropyKernel<cuda::kWide><<<grid, kThreads, 0, context.stream>>>(args, losses);
  } else {
    CrossEntropyKernel<1><<<grid, kThreads, 0, context.stream>>>(args, losses);
  }
  PENSTOCK_RETURN_IF_ERROR(cuda::LaunchStatus("CrossEntropy"));
  CrossEntropyFinishKernel<<<1, kThreads, 0, context.stream>>>(losses, args.labels, args.rows,
                                                               args.loss_sum, args.labelled_tokens);
  return cuda::LaunchStatus("CrossEntropy");
}

}  // namespace penstock
