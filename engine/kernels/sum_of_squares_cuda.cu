// Sum of squares on CUDA: blocks write partial sums to the workspace, one block adds them. A thread
// takes groups of eight neighbours, whatever their type and alignment, so the order of the sum
// depends on the count alone. f64 throughout: memory-bound where f64 runs at half rate.
#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/sum_of_squares.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1024;
constexpr int kGroup = cuda::kWide;

__device__ void LoadGroup(const float* from, float (&to)[kGroup]) {
#pragma unroll
  for (int k = 0; k < kGroup; k += 4) {
    const float4 raw = *reinterpret_cast<const float4*>(from + k);
    to[k] = raw.x, to[k + 1] = raw.y, to[k + 2] = raw.z, to[k + 3] = raw.w;
  }
}
__device__ void LoadGroup(const bf16* from, float (&to)[kGroup]) { cuda::Load(from, to); }

__device__ double Square(float value) { return static_cast<double>(value) * value; }
__device__ double Square(bf16 value) { return Square(cuda::DeviceFloat(value)); }

// `kAligned`: x allows 16-byte loads.
template <typename Element, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    SumOfSquaresPartialKernel(const Element* x, int64_t count, double* partial) {
  __shared__ double shared[kThreads / cuda::kWarp];
  double sum = 0;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kGroup; i < count;
       i += int64_t{gridDim.x} * kThreads * kGroup) {
    if (kAligned && i + kGroup <= count) {
      float group[kGroup];
      LoadGroup(x + i, group);
#pragma unroll
      for (int k = 0; k < kGroup; ++k) sum += Square(group[k]);
    } else {
      for (int64_t k = i; k < min(i + kGroup, count); ++k) sum += Square(x[k]);
    }
  }
  sum = cuda::BlockSum(sum, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void SumOfSquaresFinishKernel(const double* partial, int64_t blocks, double* sum) {
  __shared__ double shared[kThreads / cuda::kWarp];
  double total = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += kThreads) total += partial[i];
  total = cuda::BlockSum(total, shared);
  if (threadIdx.x == 0) *sum += total;
}

template <typename Element>
absl::Status Sum(const cuda::Context& context, const Element* x, int64_t count, double* sum) {
  constexpr int64_t kPerBlock = kThreads * kGroup;
  const int64_t wanted = count / kPerBlock + (count % kPerBlock > 0);
  const int64_t blocks = wanted < kMostBlocks ? wanted : kMostBlocks;
  PENSTOCK_RETURN_IF_ERROR(Require(
      count >= 0 && sum != nullptr && (count == 0 || x != nullptr) &&
          blocks * static_cast<int64_t>(sizeof(double)) <= context.workspace_bytes,
      "SumOfSquares", "arrays x and sum, a count and a workspace of one f64 a block",
      {{"count", count}, {"blocks", blocks}, {"workspace_bytes", context.workspace_bytes}}));
  if (count == 0) return absl::OkStatus();
  double* partial = reinterpret_cast<double*>(context.workspace);
  const unsigned grid = static_cast<unsigned>(blocks);
  if (cuda::AllowsWide({x}, {})) {
    SumOfSquaresPartialKernel<Element, true>
        <<<grid, kThreads, 0, context.stream>>>(x, count, partial);
  } else {
    SumOfSquaresPartialKernel<Element, false>
        <<<grid, kThreads, 0, context.stream>>>(x, count, partial);
  }
  PENSTOCK_RETURN_IF_ERROR(cuda::LaunchStatus("SumOfSquares"));
  SumOfSquaresFinishKernel<<<1, kThreads, 0, context.stream>>>(partial, blocks, sum);
  return cuda::LaunchStatus("SumOfSquares");
}

}  // namespace

absl::Status SumOfSquares(const cuda::Context& context, const float* x, int64_t count,
                          double* sum) {
  return Sum(context, x, count, sum);
}

absl::Status SumOfSquares(const cuda::Context& context, const bf16* x, int64_t count, double* sum) {
  return Sum(context, x, count, sum);
}

}  // namespace penstock
