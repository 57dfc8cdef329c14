// The arrays that tell kernels where documents are. Internal to attention_cudnn_cuda.cc.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "engine/kernels/attention_calls.h"

namespace penstock::cuda::attention {

// On the device: where a call's documents begin in each array, and their rows.
struct CallTables {
  enum Offsets : uint8_t { kQ, kK, kV, kOut, kLse, kDq, kDk, kDv };
  static constexpr int kOffsets = 8;
  // One more than documents, and up to a multiple of 128 bytes.
  static constexpr int kOffsetsEach = penstock::attention::Call::kMaxDocuments + 16;
  static constexpr int64_t kBytes =
      2 * penstock::attention::Call::kMaxDocuments * static_cast<int64_t>(sizeof(int32_t)) +
      kOffsets * kOffsetsEach * static_cast<int64_t>(sizeof(int64_t));
  static_assert(kBytes <= penstock::attention::kTableBytes);

  explicit CallTables(void* memory)
      : offsets(static_cast<int64_t*>(memory)),
        counts(reinterpret_cast<int32_t*>(offsets + kOffsets * kOffsetsEach)),
        key_counts(counts + penstock::attention::Call::kMaxDocuments) {}

  int64_t* of(Offsets which) const { return offsets + which * kOffsetsEach; }

  int64_t* offsets;     // [kOffsets, kOffsetsEach], elements
  int32_t* counts;      // [kMaxDocuments], rows
  int32_t* key_counts;  // [1], rows of keys, where they are not those of the queries
};

// Elements between rows, in the order of CallTables::Offsets.
using CallStrides = std::array<int64_t, CallTables::kOffsets>;

// Writes the tables of a call. Documents beyond the last have no rows.
absl::Status FillTables(const penstock::attention::Call& call, const CallStrides& strides,
                        const CallTables& tables, cudaStream_t stream);

// Writes the tables of a call on one document that begins each array: `query_rows` of q, out, lse
// and dq, `key_rows` of k, v, dk and dv.
absl::Status FillBlockTables(int32_t query_rows, int32_t key_rows, const CallStrides& strides,
                             const CallTables& tables, cudaStream_t stream);

// starts[0] = 0, starts[1] = rows: the document_starts of one document.
absl::Status FillStarts(int32_t rows, int32_t* starts, cudaStream_t stream);

}  // namespace penstock::cuda::attention
