#include <algorithm>

#include "engine/cuda/status.h"
#include "engine/kernels/attention_tables_cuda.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock::cuda::attention {
namespace {

using penstock::attention::Call;

struct TableParams {
  penstock::attention::DocumentPart parts[Call::kMaxDocuments];
  int64_t strides[CallTables::kOffsets];
  int count, batch;
  int summand_base;  // row of the keys where dk and dv start, 0 unless they are summands
};

// A thread for each document, and one for the end of the last.
__global__ void FillTablesKernel(const TableParams params, const CallTables tables) {
  const int document = static_cast<int>(threadIdx.x);
  if (document > params.batch) return;
  const bool inside = document < params.count;
  const auto part = params.parts[min(document, params.count - 1)];
  const int64_t query = part.query_begin + (inside ? 0 : part.query_count);
  const int64_t key = part.key_begin + (inside ? 0 : part.key_count);
  for (int i = 0; i < CallTables::kOffsets; ++i) {
    const bool gradient = i == CallTables::kDk || i == CallTables::kDv;
    const bool of_keys = gradient || i == CallTables::kK || i == CallTables::kV;
    const int64_t row = (of_keys ? key : query) - (gradient ? params.summand_base : 0);
    tables.offsets[i * CallTables::kOffsetsEach + document] = row * params.strides[i];
  }
  if (document == params.batch) return;
  tables.query_counts[document] = inside ? part.query_count : 0;
  tables.key_counts[document] = inside ? part.key_count : 0;
}

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    AddSummandsKernel(const bf16* summands, float* sums, int64_t groups) {
  const int64_t group = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (group >= groups) return;
  float summand[kWide];
  Load(summands + group * kWide, summand);
  float4* to = reinterpret_cast<float4*>(sums + group * kWide);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float4 sum = to[i];
    sum.x += summand[4 * i], sum.y += summand[4 * i + 1];
    sum.z += summand[4 * i + 2], sum.w += summand[4 * i + 3];
    to[i] = sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    StoreSumsKernel(const float* sums, int64_t groups, int64_t groups_per_row, bf16* out,
                    int64_t stride) {
  const int64_t group = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (group >= groups) return;
  const float4* from = reinterpret_cast<const float4*>(sums + group * kWide);
  const float4 low = from[0], high = from[1];
  const float values[kWide] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  Store(values, out + group / groups_per_row * stride + group % groups_per_row * kWide);
}

unsigned Blocks(int64_t groups) {
  return static_cast<unsigned>((groups + kThreads - 1) / kThreads);
}

}  // namespace

absl::Status FillTables(const Call& call, const CallStrides& strides, const CallTables& tables,
                        cudaStream_t stream) {
  TableParams params{};
  std::copy_n(call.parts.begin(), call.count, params.parts);
  std::copy(strides.begin(), strides.end(), params.strides);
  params.count = static_cast<int>(call.count);
  params.batch = static_cast<int>(call.batch);
  params.summand_base = call.summand ? call.parts[0].key_begin : 0;
  FillTablesKernel<<<1, Call::kMaxDocuments + 1, 0, stream>>>(params, tables);
  return LaunchStatus("attention: FillTables");
}

absl::Status AddSummands(const bf16* summands, float* sums, int64_t count, cudaStream_t stream) {
  const int64_t groups = count / kWide;
  AddSummandsKernel<<<Blocks(groups), kThreads, 0, stream>>>(summands, sums, groups);
  return LaunchStatus("attention: AddSummands");
}

absl::Status StoreSums(const float* sums, int64_t rows, int64_t columns, bf16* out, int64_t stride,
                       cudaStream_t stream) {
  const int64_t groups_per_row = columns / kWide, groups = rows * groups_per_row;
  StoreSumsKernel<<<Blocks(groups), kThreads, 0, stream>>>(sums, groups, groups_per_row, out,
                                                           stride);
  return LaunchStatus("attention: StoreSums");
}

}  // namespace penstock::cuda::attention
