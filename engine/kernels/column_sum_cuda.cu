#include <algorithm>

#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/column_sum_cuda.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock::cuda {
namespace {

// Of a block that sums rows: as many columns as a warp loads, and rows of threads.
constexpr int kRowsOfThreads = 8;
constexpr int64_t kRowsPerChunk = 64;  // at least, while chunks are few
constexpr int64_t kMostChunks = 128;
// Of a block that adds chunks.
constexpr int kAddingColumns = kWarp, kAddingRows = 32;

template <int kWidth>
__global__ void PartialSumsKernel(const bf16* x, int64_t rows, int64_t rows_per_chunk,
                                  const PartialSums partial) {
  __shared__ float shared[kRowsOfThreads][kWarp * kWidth];
  const int64_t col = (int64_t{blockIdx.x} * kWarp + threadIdx.x) * kWidth;
  const int64_t begin = blockIdx.y * rows_per_chunk;
  const int64_t end = begin + rows_per_chunk < rows ? begin + rows_per_chunk : rows;
  float sums[kWidth] = {};
  if (col < partial.cols) {
#pragma unroll 4
    for (int64_t row = begin + threadIdx.y; row < end; row += kRowsOfThreads) {
      float values[kWidth];
      Load(x + row * partial.cols + col, values);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[i] += values[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) shared[threadIdx.y][i * kWarp + threadIdx.x] = sums[i];
  __syncthreads();
  if (threadIdx.y != 0 || col >= partial.cols) return;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    sums[i] = 0;
#pragma unroll
    for (int row = 0; row < kRowsOfThreads; ++row) sums[i] += shared[row][i * kWarp + threadIdx.x];
  }
  Store(sums, partial.sums + blockIdx.y * partial.cols + col);
}

__global__ void AddPartialSumsKernel(const PartialSums partial, bool add, float* out) {
  __shared__ float shared[kAddingRows][kAddingColumns];
  const int64_t col = int64_t{blockIdx.x} * kAddingColumns + threadIdx.x;
  float sum = 0;
  if (col < partial.cols) {
#pragma unroll 8
    for (int64_t chunk = threadIdx.y; chunk < partial.chunks; chunk += kAddingRows) {
      sum += partial.sums[chunk * partial.cols + col];
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= partial.cols) return;
  sum = 0;
#pragma unroll
  for (int row = 0; row < kAddingRows; ++row) sum += shared[row][threadIdx.x];
  out[col] = add ? out[col] + sum : sum;
}

template <int kWidth>
void LaunchPartialSums(const Context& context, const bf16* x, int64_t rows, int64_t rows_per_chunk,
                       const PartialSums& partial) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(partial.cols, kWarp * kWidth)),
                  static_cast<unsigned>(partial.chunks));
  PartialSumsKernel<kWidth>
      <<<grid, dim3(kWarp, kRowsOfThreads), 0, context.stream>>>(x, rows, rows_per_chunk, partial);
}

}  // namespace

absl::StatusOr<PartialSums> PlacePartialSums(const Context& context, std::string_view op,
                                             int64_t wanted, int64_t cols) {
  const int64_t room = context.workspace_bytes / (cols * static_cast<int64_t>(sizeof(float)));
  PENSTOCK_RETURN_IF_ERROR(Require(room >= 1, op, "a workspace of one float a column",
                                   {{"workspace_bytes", context.workspace_bytes}, {"cols", cols}}));
  return PartialSums{reinterpret_cast<float*>(context.workspace), std::min(wanted, room), cols};
}

absl::Status AddPartialSums(const Context& context, std::string_view op, const PartialSums& partial,
                            WriteMode mode, float* out) {
  AddPartialSumsKernel<<<static_cast<unsigned>(CeilDiv(partial.cols, kAddingColumns)),
                         dim3(kAddingColumns, kAddingRows), 0, context.stream>>>(
      partial, mode == WriteMode::kAdd, out);
  return LaunchStatus(op);
}

absl::Status ColumnSum(const Context& context, std::string_view op, const bf16* x, int64_t rows,
                       int64_t cols, WriteMode mode, float* out) {
  if (cols == 0) return absl::OkStatus();
  const int64_t wanted = std::min(CeilDiv(rows, kRowsPerChunk), kMostChunks);
  PENSTOCK_ASSIGN_OR_RETURN(PartialSums partial, PlacePartialSums(context, op, wanted, cols));
  if (rows > 0) {
    const int64_t rows_per_chunk = CeilDiv(rows, partial.chunks);
    partial.chunks = CeilDiv(rows, rows_per_chunk);
    if (AllowsWide({x}, {cols})) {
      LaunchPartialSums<kWide>(context, x, rows, rows_per_chunk, partial);
    } else {
      LaunchPartialSums<1>(context, x, rows, rows_per_chunk, partial);
    }
    PENSTOCK_RETURN_IF_ERROR(LaunchStatus(op));
  }
  return AddPartialSums(context, op, partial, mode, out);
}

}  // namespace penstock::cuda
