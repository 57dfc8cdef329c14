// Embedding on CUDA.
//
// Backward is a scatter without atomics or a sort: the block of row r does nothing unless r is
// the first row of its token; then it walks the later rows, 256 ids at a time, and sums those of
// the same token in ascending order. Reading all ids costs rows^2 * 4 bytes from the L2 cache,
// which is small beside the rows themselves up to some 10^5 rows.
#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/embedding.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock {
namespace {

using cuda::kWarp;

constexpr int kThreads = 256;
constexpr int kColumnsPerThread = 4;  // of the backward op, kThreads apart
constexpr int64_t kColumnsPerBlock = kThreads * kColumnsPerThread;

template <int kWidth>
__global__ void EmbeddingForwardKernel(const EmbeddingForwardArgs<bf16> args) {
  const int64_t row = blockIdx.x;
  const bf16* from = args.table + args.ids[row] * args.cols;
  bf16* to = args.out + row * args.cols;
  for (int64_t col = threadIdx.x * kWidth; col < args.cols; col += kThreads * kWidth) {
    float values[kWidth];
    cuda::Load(from + col, values);
    cuda::Store(values, to + col);
  }
}

__device__ bool IsFirstOfItsToken(const int32_t* ids, int64_t row) {
  const int32_t token = ids[row];
  bool seen = false;
  for (int64_t i = threadIdx.x; i < row; i += kThreads) seen = seen || ids[i] == token;
  return __syncthreads_or(seen) == 0;
}

// Lists in `matches` the rows [begin, begin + kThreads) of `token`, ascending; returns their
// number. `counts` holds one number a warp.
__device__ int ListMatches(const EmbeddingBackwardArgs<bf16>& args, int32_t token, int64_t begin,
                           int* counts, int64_t* matches) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t row = begin + threadIdx.x;
  const bool match = row < args.rows && args.ids[row] == token;
  const unsigned ballot = __ballot_sync(0xffffffffu, match);
  if (lane == 0) counts[warp] = __popc(ballot);
  __syncthreads();
  int before = 0, total = 0;
  for (int i = 0; i < kThreads / kWarp; ++i) {
    before += i < warp ? counts[i] : 0;
    total += counts[i];
  }
  if (match) matches[before + __popc(ballot & ((1u << lane) - 1u))] = row;
  __syncthreads();
  return total;
}

__global__ void EmbeddingBackwardKernel(const EmbeddingBackwardArgs<bf16> args) {
  __shared__ int counts[kThreads / kWarp];
  __shared__ int64_t matches[kThreads];
  const int64_t first = blockIdx.x;
  if (!IsFirstOfItsToken(args.ids, first)) return;
  const int32_t token = args.ids[first];
  const int64_t begin_col = blockIdx.y * kColumnsPerBlock + threadIdx.x;
  float sums[kColumnsPerThread] = {};
  for (int64_t begin = first; begin < args.rows; begin += kThreads) {
    const int found = ListMatches(args, token, begin, counts, matches);
    for (int match = 0; match < found; ++match) {
      const bf16* row = args.dout + matches[match] * args.cols;
#pragma unroll
      for (int i = 0; i < kColumnsPerThread; ++i) {
        const int64_t col = begin_col + i * kThreads;
        if (col < args.cols) sums[i] += cuda::DeviceFloat(row[col]);
      }
    }
    __syncthreads();  // before the next list takes this one's place
  }
#pragma unroll
  for (int i = 0; i < kColumnsPerThread; ++i) {
    const int64_t col = begin_col + i * kThreads;
    if (col < args.cols) args.dtable[token * args.cols + col] += sums[i];
  }
}

}  // namespace

absl::Status EmbeddingForward(const cuda::Context& context,
                              const EmbeddingForwardArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(RequireSizes(
      "EmbeddingForward", {{"rows", args.rows}, {"cols", args.cols}, {"vocab", args.vocab}}));
  if (args.rows == 0) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.ids != nullptr && args.table != nullptr && args.out != nullptr,
              "EmbeddingForward", "arrays ids, table and out"));
  const unsigned grid = static_cast<unsigned>(args.rows);
  if (cuda::AllowsWide({args.table, args.out}, {args.cols})) {
    EmbeddingForwardKernel<cuda::kWide><<<grid, kThreads, 0, context.stream>>>(args);
  } else {
    EmbeddingForwardKernel<1><<<grid, kThreads, 0, context.stream>>>(args);
  }
  return cuda::LaunchStatus("EmbeddingForward");
}

absl::Status EmbeddingBackward(const cuda::Context& context,
                               const EmbeddingBackwardArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(RequireSizes(
      "EmbeddingBackward", {{"rows", args.rows}, {"cols", args.cols}, {"vocab", args.vocab}}));
  PENSTOCK_RETURN_IF_ERROR(Require(
      args.dtable != nullptr && (args.rows == 0 || (args.ids != nullptr && args.dout != nullptr)),
      "EmbeddingBackward", "arrays ids, dout and dtable"));
  if (args.mode == WriteMode::kOverwrite) {
    PENSTOCK_RETURN_IF_ERROR(cuda::CudaStatus(
        cudaMemsetAsync(args.dtable, 0, args.vocab * args.cols * sizeof(float), context.stream),
        "EmbeddingBackward"));
  }
  if (args.rows == 0 || args.cols == 0) return absl::OkStatus();
  const dim3 grid(static_cast<unsigned>(args.rows),
                  static_cast<unsigned>((args.cols + kColumnsPerBlock - 1) / kColumnsPerBlock));
  EmbeddingBackwardKernel<<<grid, kThreads, 0, context.stream>>>(args);
  return cuda::LaunchStatus("EmbeddingBackward");
}

}  // namespace penstock
