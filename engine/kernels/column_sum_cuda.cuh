// Sums over rows, for gradients of vectors: out[c] = (out[c] +) sum_r term(r, c).
//
// Two kernels, so that the order is fixed without atomics: blocks of 32 columns and a chunk of
// rows write partial sums to the workspace, then one thread a column adds the chunks in order.
// Chunks depend on the shape and the workspace's size alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/context.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock::cuda {

struct ColumnSumTuning {
  static constexpr int kRowsOfThreads = 8;
  static constexpr int64_t kRowsPerChunk = 64;  // at least, while chunks are few
  static constexpr int64_t kMostChunks = 128;
  static constexpr int kFinishThreads = 128;
};

template <typename Term>
__global__ void ColumnSumPartialKernel(Term term, int64_t rows, int64_t cols,
                                       int64_t rows_per_chunk, float* partial) {
  constexpr int kRows = ColumnSumTuning::kRowsOfThreads;
  __shared__ float sums[kRows][kWarp];
  const int64_t col = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  const int64_t begin = blockIdx.y * rows_per_chunk;
  const int64_t end = begin + rows_per_chunk < rows ? begin + rows_per_chunk : rows;
  float sum = 0;
  if (col < cols) {
#pragma unroll 4
    for (int64_t row = begin + threadIdx.y; row < end; row += kRows) sum += term(row, col);
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= cols) return;
  float total = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) total += sums[i][threadIdx.x];
  partial[blockIdx.y * cols + col] = total;
}

static __global__ void ColumnSumFinishKernel(const float* partial, int64_t chunks, int64_t cols,
                                             bool add, float* out) {
  const int64_t col = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  float sum = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk * cols + col];
  out[col] = add ? out[col] + sum : sum;
}

template <typename Term>
absl::Status ColumnSum(const Context& context, std::string_view op, const Term& term, int64_t rows,
                       int64_t cols, WriteMode mode, float* out) {
  using Tuning = ColumnSumTuning;
  if (cols == 0) return absl::OkStatus();
  const int64_t room = context.workspace_bytes / (cols * static_cast<int64_t>(sizeof(float)));
  PENSTOCK_RETURN_IF_ERROR(Require(room >= 1, op, "a workspace of one float a column",
                                   {{"workspace_bytes", context.workspace_bytes}, {"cols", cols}}));
  const int64_t wanted = (rows + Tuning::kRowsPerChunk - 1) / Tuning::kRowsPerChunk;
  const int64_t most = std::clamp<int64_t>(wanted, 1, std::min(room, Tuning::kMostChunks));
  const int64_t rows_per_chunk = std::max<int64_t>(1, (rows + most - 1) / most);
  const int64_t chunks = std::max<int64_t>(1, (rows + rows_per_chunk - 1) / rows_per_chunk);
  float* partial = reinterpret_cast<float*>(context.workspace);
  const dim3 grid(static_cast<unsigned>((cols + kWarp - 1) / kWarp), static_cast<unsigned>(chunks));
  ColumnSumPartialKernel<<<grid, dim3(kWarp, Tuning::kRowsOfThreads), 0, context.stream>>>(
      term, rows, cols, rows_per_chunk, partial);
  PENSTOCK_RETURN_IF_ERROR(LaunchStatus(op));
  ColumnSumFinishKernel<<<GridFor(cols, Tuning::kFinishThreads), Tuning::kFinishThreads, 0,
                          context.stream>>>(partial, chunks, cols, mode == WriteMode::kAdd, out);
  return LaunchStatus(op);
}

}  // namespace penstock::cuda
