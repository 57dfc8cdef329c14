#include <algorithm>

#include "engine/cuda/status.h"
#include "engine/kernels/attention_tables_cuda.h"

namespace penstock::cuda::attention {
namespace {

using penstock::attention::Call;

struct TableParams {
  penstock::attention::Document documents[Call::kMaxDocuments];
  int64_t strides[CallTables::kOffsets];
  int count, batch;
};

// A thread for each document, and one for the end of the last.
__global__ void FillTablesKernel(const TableParams params, const CallTables tables) {
  const int index = static_cast<int>(threadIdx.x);
  if (index > params.batch) return;
  const bool inside = index < params.count;
  const auto document = params.documents[min(index, params.count - 1)];
  const int64_t row = document.begin + (inside ? 0 : document.rows);
  for (int i = 0; i < CallTables::kOffsets; ++i) {
    tables.offsets[i * CallTables::kOffsetsEach + index] = row * params.strides[i];
  }
  if (index < params.batch) tables.counts[index] = inside ? document.rows : 0;
}

struct BlockTableParams {
  int64_t ends[CallTables::kOffsets];  // elements
  int32_t query_rows, key_rows;
};

// A thread for each array.
__global__ void FillBlockTablesKernel(const BlockTableParams params, const CallTables tables) {
  const int i = static_cast<int>(threadIdx.x);
  tables.offsets[i * CallTables::kOffsetsEach] = 0;
  tables.offsets[i * CallTables::kOffsetsEach + 1] = params.ends[i];
  if (i == 0) {
    tables.counts[0] = params.query_rows;
    tables.key_counts[0] = params.key_rows;
  }
}

__global__ void FillStartsKernel(int32_t rows, int32_t* starts) {
  starts[0] = 0;
  starts[1] = rows;
}

}  // namespace

absl::Status FillTables(const Call& call, const CallStrides& strides, const CallTables& tables,
                        cudaStream_t stream) {
  TableParams params{};
  std::copy_n(call.documents.begin(), call.count, params.documents);
  std::copy(strides.begin(), strides.end(), params.strides);
  params.count = static_cast<int>(call.count);
  params.batch = static_cast<int>(call.batch);
  FillTablesKernel<<<1, Call::kMaxDocuments + 1, 0, stream>>>(params, tables);
  return LaunchStatus("attention: FillTables");
}

absl::Status FillBlockTables(int32_t query_rows, int32_t key_rows, const CallStrides& strides,
                             const CallTables& tables, cudaStream_t stream) {
  BlockTableParams params{};
  for (int i = 0; i < CallTables::kOffsets; ++i) params.ends[i] = query_rows * strides[i];
  for (const int i : {CallTables::kK, CallTables::kV, CallTables::kDk, CallTables::kDv}) {
    params.ends[i] = key_rows * strides[i];
  }
  params.query_rows = query_rows;
  params.key_rows = key_rows;
  FillBlockTablesKernel<<<1, CallTables::kOffsets, 0, stream>>>(params, tables);
  return LaunchStatus("attention: FillBlockTables");
}

absl::Status FillStarts(int32_t rows, int32_t* starts, cudaStream_t stream) {
  FillStartsKernel<<<1, 1, 0, stream>>>(rows, starts);
  return LaunchStatus("attention: FillStarts");
}

}  // namespace penstock::cuda::attention
