// Sum of squares on CUDA: blocks write partial sums to the workspace, one block adds them. The
// cut depends on the count alone. f64 throughout: memory-bound where f64 runs at half rate.
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
constexpr int64_t kElementsPerThread = 8;  // at least, while blocks are few

__global__ void SumOfSquaresPartialKernel(const float* x, int64_t count, double* partial) {
  __shared__ double shared[kThreads / cuda::kWarp];
  double sum = 0;
#pragma unroll 4
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kThreads) {
    const double value = x[i];
    sum += value * value;
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

}  // namespace

absl::Status SumOfSquares(const cuda::Context& context, const float* x, int64_t count,
                          double* sum) {
  constexpr int64_t kPerBlock = kThreads * kElementsPerThread;
  const int64_t wanted = (count + kPerBlock - 1) / kPerBlock;
  const int64_t blocks = wanted < kMostBlocks ? wanted : kMostBlocks;
  PENSTOCK_RETURN_IF_ERROR(Require(
      count >= 0 && sum != nullptr && (count == 0 || x != nullptr) &&
          blocks * static_cast<int64_t>(sizeof(double)) <= context.workspace_bytes,
      "SumOfSquares", "arrays x and sum, a count and a workspace of one f64 a block",
      {{"count", count}, {"blocks", blocks}, {"workspace_bytes", context.workspace_bytes}}));
  if (count == 0) return absl::OkStatus();
  double* partial = reinterpret_cast<double*>(context.workspace);
  SumOfSquaresPartialKernel<<<static_cast<unsigned>(blocks), kThreads, 0, context.stream>>>(
      x, count, partial);
  PENSTOCK_RETURN_IF_ERROR(cuda::LaunchStatus("SumOfSquares"));
  SumOfSquaresFinishKernel<<<1, kThreads, 0, context.stream>>>(partial, blocks, sum);
  return cuda::LaunchStatus("SumOfSquares");
}

}  // namespace penstock
