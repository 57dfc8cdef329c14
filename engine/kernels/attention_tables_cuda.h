// Small kernels around cuDNN's attention. Internal to attention_cudnn_cuda.cc.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "engine/base/bf16.h"
#include "engine/kernels/attention_calls.h"

namespace penstock::cuda::attention {

// Arrays that tell cuDNN where a call's documents are.
struct CallTables {
  static constexpr int kOffsets = 8;
  static constexpr int kOffsetsEach = penstock::attention::Call::kMaxDocuments + 1;
  enum Offsets : uint8_t { kQ, kK, kV, kOut, kLse, kDq, kDk, kDv };
  static constexpr int64_t kBytes =
      2 * penstock::attention::Call::kMaxDocuments * static_cast<int64_t>(sizeof(int32_t)) +
      kOffsets * kOffsetsEach * static_cast<int64_t>(sizeof(int64_t));
  static_assert(kBytes <= penstock::attention::kTableBytes);

  explicit CallTables(void* memory)
      : offsets(static_cast<int64_t*>(memory)),
        query_counts(reinterpret_cast<int32_t*>(offsets + kOffsets * kOffsetsEach)),
        key_counts(query_counts + penstock::attention::Call::kMaxDocuments) {}

  int64_t* of(Offsets which) const { return offsets + which * kOffsetsEach; }

  int64_t* offsets;  // [kOffsets, kOffsetsEach], elements
  int32_t *query_counts, *key_counts;
};

// Elements between rows, in the order of CallTables::Offsets.
using CallStrides = std::array<int64_t, CallTables::kOffsets>;

// Writes the tables of a call. Documents beyond the last have no rows; the offsets of a summand's
// dk and dv count from its first key.
absl::Status FillTables(const penstock::attention::Call& call, const CallStrides& strides,
                        const CallTables& tables, cudaStream_t stream);

// sums[i] += summands[i], i < count; count % 8 == 0 and both 16-byte aligned.
absl::Status AddSummands(const bf16* summands, float* sums, int64_t count, cudaStream_t stream);

// out[r * stride + c] = sums[r * columns + c], r < rows, c < columns.
absl::Status StoreSums(const float* sums, int64_t rows, int64_t columns, bf16* out, int64_t stride,
                       cudaStream_t stream);

}  // namespace penstock::cuda::attention
