// A team of threads takes one row after another, holds it in registers between the sum over its
// columns and dx, and keeps its part of dw there until its last row. So each tensor is moved once.
// A block is one team or, where rows are short, several. Rows longer than registers hold, or not
// aligned, are read twice (LongRowsKernel).
//
// There are as many blocks as an H100 runs at once, on any card, so that the sums' order is the
// same; more would wait, and each costs a row of partial sums.
#include <algorithm>
#include <cstdint>

#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/column_sum_cuda.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/norm_backward_cuda.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock::cuda {
namespace {

constexpr int kWholeBlock = 0;     // as the size of a team
constexpr int kMostThreads = 512;  // of a block: more would have too few registers
constexpr int kLongThreads = 256;
constexpr int64_t kMultiprocessors = 132;

// Where a row lies.
struct Place {
  uint32_t outer, inner;  // inner < rows_per_stride

  __device__ Place(const NormedRows& rows, uint32_t row)
      : outer(row / static_cast<uint32_t>(rows.rows_per_stride)),
        inner(row % static_cast<uint32_t>(rows.rows_per_stride)) {}
  __device__ int64_t Begin(int64_t stride, int64_t cols) const {
    return outer * stride + inner * cols;
  }
  // By as many rows as lie before `distance`. A short row is done sooner than two divisions.
  __device__ void MoveOn(const Place& distance, int64_t rows_per_stride) {
    outer += distance.outer;
    inner += distance.inner;
    if (inner >= rows_per_stride) {
      inner -= rows_per_stride;
      ++outer;
    }
  }
};

// Where a thread's vectors of a row are: kKept of them, the team's threads side by side.
struct Columns {
  int first, step;

  __device__ int Of(int k) const { return first + k * step; }
};

// A block's sums for dw, of its teams in their order. All its threads call it.
template <int kTeam, int kKept>
__device__ void WriteSums(const float (&dw)[kKept][kWide], const Columns& columns, int64_t cols,
                          float* partial) {
  extern __shared__ float team_sums[];  // [teams, cols]; of a whole-block team none
  float* sums = partial + blockIdx.x * cols;
  if constexpr (kTeam != kWholeBlock) {
    const int team = threadIdx.x / kTeam;
    sums = team_sums + team * cols;
  }
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    if (columns.Of(k) < cols) Store(dw[k], sums + columns.Of(k));
  }
  if constexpr (kTeam != kWholeBlock) {
    const int teams = blockDim.x / kTeam;
    __syncthreads();
    for (int col = threadIdx.x; col < cols; col += blockDim.x) {
      float sum = 0;
      for (int team = 0; team < teams; ++team) sum += team_sums[team * cols + col];
      partial[blockIdx.x * cols + col] = sum;
    }
  }
}

template <int kTeam, int kKept, bool kAdd>
__global__ void __launch_bounds__(kMostThreads)
    NormBackwardKernel(const NormedRows rows, float* partial) {
  __shared__ float warp_sums[kMostThreads / kWarp];
  const int team_threads = kTeam == kWholeBlock ? blockDim.x : kTeam;
  const int teams = blockDim.x / team_threads, team = threadIdx.x / team_threads;
  const Columns columns = {static_cast<int>(threadIdx.x % team_threads * kWide),
                           team_threads * kWide};
  const uint32_t rows_a_round = gridDim.x * teams;
  Place place(rows, blockIdx.x * teams + team);
  const Place round(rows, rows_a_round);
  float dw[kKept][kWide] = {};
  // All threads of a warp stay in the loop for their teams' sums.
  for (uint32_t begin = blockIdx.x * teams; begin < rows.count; begin += rows_a_round) {
    const bool exists = begin + team < rows.count;
    const int64_t cols = exists ? rows.cols : 0;
    const float rstd = exists ? rows.rstd[begin + team] : 0;
    const bf16* dy = rows.dy + place.Begin(rows.dy_stride, rows.cols);
    const bf16* x = rows.x + place.Begin(rows.x_stride, rows.cols);
    bf16* dx = rows.dx + place.Begin(rows.dx_stride, rows.cols);
    place.MoveOn(round, rows.rows_per_stride);
    Packed kept_x[kKept], kept_dy[kKept], kept_dx[kKept];
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int col = columns.Of(k);
      if (col >= cols) continue;
      kept_x[k] = LoadPacked(x + col);
      kept_dy[k] = LoadPacked(dy + col);
      if (kAdd) kept_dx[k] = LoadPacked(dx + col);
    }
    float values[kWide], gradients[kWide], weights[kWide];
    const auto unpack = [&](int k, int col) {
      Unpack(kept_x[k], values);
      Unpack(kept_dy[k], gradients);
      Load(rows.w + col, weights);
    };
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int col = columns.Of(k);
      if (col >= cols) continue;
      unpack(k, col);
#pragma unroll
      for (int i = 0; i < kWide; ++i) {
        const float term = gradients[i] * values[i] * rstd;
        dw[k][i] += term;
        sum += term * weights[i];
      }
    }
    if constexpr (kTeam == kWholeBlock) {
      sum = BlockSum(sum, warp_sums);
    } else {
      sum = TeamSum<kTeam>(sum);
    }
    const float mean = sum / static_cast<float>(rows.cols);
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int col = columns.Of(k);
      if (col >= cols) continue;
      unpack(k, col);
      float out[kWide] = {};
      if (kAdd) Unpack(kept_dx[k], out);
#pragma unroll
      for (int i = 0; i < kWide; ++i) {
        out[i] += rstd * (gradients[i] * weights[i] - values[i] * rstd * mean);
      }
      Store(out, dx + col);
    }
  }
  WriteSums<kTeam>(dw, columns, rows.cols, partial);
}

// A block a row at a time; a thread adds to dw of its own columns in its block's partial sums.
__global__ void LongRowsKernel(const NormedRows rows, float* partial) {
  __shared__ float warp_sums[kLongThreads / kWarp];
  float* dw = partial + blockIdx.x * rows.cols;
  for (int64_t col = threadIdx.x; col < rows.cols; col += kLongThreads) dw[col] = 0;
  for (uint32_t row = blockIdx.x; row < rows.count; row += gridDim.x) {
    const Place place(rows, row);
    const bf16* dy = rows.dy + place.Begin(rows.dy_stride, rows.cols);
    const bf16* x = rows.x + place.Begin(rows.x_stride, rows.cols);
    bf16* dx = rows.dx + place.Begin(rows.dx_stride, rows.cols);
    const float rstd = rows.rstd[row];
    float sum = 0;
    for (int64_t col = threadIdx.x; col < rows.cols; col += kLongThreads) {
      const float term = DeviceFloat(dy[col]) * DeviceFloat(x[col]) * rstd;
      dw[col] += term;
      sum += term * DeviceFloat(rows.w[col]);
    }
    const float mean = BlockSum(sum, warp_sums) / static_cast<float>(rows.cols);
    for (int64_t col = threadIdx.x; col < rows.cols; col += kLongThreads) {
      const float before = rows.dx_mode == WriteMode::kAdd ? DeviceFloat(dx[col]) : 0;
      dx[col] = DeviceBf16(before + rstd * (DeviceFloat(dy[col]) * DeviceFloat(rows.w[col]) -
                                            DeviceFloat(x[col]) * rstd * mean));
    }
  }
}

using Kernel = void (*)(NormedRows, float*);

template <int kTeam, int kKept>
Kernel KernelFor(WriteMode dx_mode) {
  return dx_mode == WriteMode::kAdd ? NormBackwardKernel<kTeam, kKept, true>
                                    : NormBackwardKernel<kTeam, kKept, false>;
}

struct Launch {
  Kernel kernel;
  int threads, team_threads;
  int threads_in_flight;  // of a multiprocessor, as its registers allow
};

Launch LaunchFor(const NormedRows& rows) {
  const int64_t vectors = rows.cols / kWide;
  const bool wide = AllowsWide({rows.dy, rows.x, rows.w, rows.dx},
                               {rows.dy_stride, rows.x_stride, rows.dx_stride, rows.cols});
  if (!wide || vectors > 4 * kMostThreads) {
    return {LongRowsKernel, kLongThreads, kLongThreads, 1024};
  }
  const WriteMode mode = rows.dx_mode;
  if (vectors <= 8) return {KernelFor<8, 1>(mode), kMostThreads, 8, 1536};
  if (vectors <= 16) return {KernelFor<16, 1>(mode), kMostThreads, 16, 1536};
  if (vectors <= kWarp) return {KernelFor<kWarp, 1>(mode), kMostThreads, kWarp, 1536};
  if (vectors <= 4 * kWarp) return {KernelFor<kWarp, 4>(mode), 256, kWarp, 512};
  const int kept = vectors <= kMostThreads ? 2 : 4;
  const auto threads = static_cast<int>(RoundUp(CeilDiv(vectors, kept), kWarp));
  if (kept == 2) return {KernelFor<kWholeBlock, 2>(mode), threads, threads, 768};
  return {KernelFor<kWholeBlock, 4>(mode), threads, threads, 512};
}

}  // namespace

absl::Status NormBackward(const Context& context, std::string_view op, const NormedRows& rows,
                          float* dw, WriteMode dw_mode) {
  PENSTOCK_RETURN_IF_ERROR(Require(rows.count <= INT32_MAX, op, "fewer than 2^31 rows and heads",
                                   {{"rows and heads", rows.count}}));
  const Launch launch = LaunchFor(rows);
  const int64_t teams = launch.threads / launch.team_threads;
  const int64_t blocks = kMultiprocessors * (launch.threads_in_flight / launch.threads);
  PENSTOCK_ASSIGN_OR_RETURN(
      PartialSums partial,
      PlacePartialSums(context, op, std::min(blocks, CeilDiv(rows.count, teams)), rows.cols));
  if (rows.count > 0) {
    const size_t shared_bytes = teams == 1 ? 0 : teams * rows.cols * sizeof(float);
    launch.kernel<<<static_cast<unsigned>(partial.chunks), launch.threads, shared_bytes,
                    context.stream>>>(rows, partial.sums);
    PENSTOCK_RETURN_IF_ERROR(LaunchStatus(op));
  }
  return AddPartialSums(context, op, partial, dw_mode, dw);
}

}  // namespace penstock::cuda
