// Embedding on CUDA.
//
// Backward is a scatter without atomics: rows are ordered by token (row_order.h), and the block of
// a token's first row adds all its rows up, in their order. Most tokens occur once: a block takes
// all columns, as far as it goes, so that few blocks find that their token is another's. A token
// that fills a micro-batch, as padding does, is one block's work; hence several rows are loaded
// ahead of the sums.
#include <algorithm>

#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/embedding.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock {
namespace {

constexpr int kThreads = 256;
constexpr int kMostSumThreads = 512;  // of the backward op; a thread has one vector of columns
constexpr int kRowsAhead = 4;

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

// sums += rows[0], rows[1], ... of `dout`, in this order.
template <int kWidth>
__device__ void AddRows(const EmbeddingBackwardArgs<bf16>& args, const int32_t* rows, int count,
                        int64_t col, float (&sums)[kWidth]) {
  int done = 0;
  for (; done + kRowsAhead <= count; done += kRowsAhead) {
    float values[kRowsAhead][kWidth];
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r) {
      cuda::Load(args.dout + rows[done + r] * args.cols + col, values[r]);
    }
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[i] += values[r][i];
    }
  }
  for (; done < count; ++done) {
    float values[kWidth];
    cuda::Load(args.dout + rows[done] * args.cols + col, values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] += values[i];
  }
}

template <int kWidth>
__global__ void EmbeddingBackwardKernel(const EmbeddingBackwardArgs<bf16> args,
                                        const cuda::RowOrder order) {
  __shared__ int32_t rows[kMostSumThreads];
  const int64_t first = blockIdx.x;
  const int32_t token = order.keys[first];
  if (first > 0 && order.keys[first - 1] == token) return;
  const int64_t col = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kWidth;
  const bool has_columns = col < args.cols;
  float* gradient = args.dtable + token * args.cols + col;
  float sums[kWidth] = {};
  if (has_columns && args.mode == WriteMode::kAdd) cuda::Load(gradient, sums);
  const int threads = blockDim.x;
  int found = threads;
  for (int64_t begin = first; found == threads; begin += threads) {
    __syncthreads();  // before these rows take the last ones' place
    const int64_t at = begin + threadIdx.x;
    const bool same = at < args.rows && order.keys[at] == token;
    if (same) rows[threadIdx.x] = order.rows[at];
    found = __syncthreads_count(same);
    if (has_columns) AddRows(args, rows, found, col, sums);
  }
  if (has_columns) cuda::Store(sums, gradient);
}

template <int kWidth>
void LaunchBackward(const cuda::Context& context, const EmbeddingBackwardArgs<bf16>& args,
                    const cuda::RowOrder& order) {
  const int64_t vectors = CeilDiv(args.cols, kWidth);
  const auto threads =
      static_cast<unsigned>(std::min<int64_t>(RoundUp(vectors, cuda::kWarp), kMostSumThreads));
  const dim3 grid(static_cast<unsigned>(args.rows),
                  static_cast<unsigned>(CeilDiv(vectors, threads)));
  EmbeddingBackwardKernel<kWidth><<<grid, threads, 0, context.stream>>>(args, order);
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
  const int64_t scratch_bytes = CudaEmbeddingScratchBytes(args.rows);
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.rows == 0 || (args.scratch != nullptr && args.scratch_bytes >= scratch_bytes),
              "EmbeddingBackward", "scratch of CudaEmbeddingScratchBytes()",
              {{"scratch_bytes", args.scratch_bytes}, {"needed", scratch_bytes}}));
  if (args.mode == WriteMode::kOverwrite) {
    PENSTOCK_RETURN_IF_ERROR(cuda::CudaStatus(
        cudaMemsetAsync(args.dtable, 0, args.vocab * args.cols * sizeof(float), context.stream),
        "EmbeddingBackward"));
  }
  if (args.rows == 0 || args.cols == 0) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const cuda::RowOrder order,
                            cuda::OrderRows(context, "EmbeddingBackward", args.ids, args.rows,
                                            args.vocab, static_cast<std::byte*>(args.scratch)));
  if (cuda::AllowsWide({args.dout, args.dtable}, {args.cols})) {
    LaunchBackward<cuda::kWide>(context, args, order);
  } else {
    LaunchBackward<1>(context, args, order);
  }
  return cuda::LaunchStatus("EmbeddingBackward");
}

}  // namespace penstock
