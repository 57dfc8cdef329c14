// Token embedding.
//   forward    out[r,:] = table[ids[r],:]
//   backward   dtable[t,:] = sum of dout[r,:] over the rows with ids[r] == t
// Shapes    ids [rows]; table, dtable [vocab, cols]; out, dout [rows, cols].
// Numerics  dtable is f32; rows are added in ascending order, to what is there in kAdd mode.
// Scratch   of the backward op: scratch_bytes >= CudaEmbeddingScratchBytes(rows), contents
//           undefined before and after; the CPU needs none.
// Needs     0 <= ids[r] < vocab, else InvalidArgument (CPU).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/kernels/context.h"
#include "engine/kernels/row_order.h"

namespace penstock {

template <typename T>
struct EmbeddingForwardArgs {
  const int32_t* ids;
  const T* table;
  T* out;
  int64_t rows, cols, vocab;
};

template <typename T>
struct EmbeddingBackwardArgs {
  const int32_t* ids;
  const T* dout;
  float* dtable;
  int64_t rows, cols, vocab;
  WriteMode mode;  // kOverwrite clears the rows of tokens that do not occur
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;
};

absl::Status EmbeddingForward(const cpu::Context& context, const EmbeddingForwardArgs<float>& args);
absl::Status EmbeddingBackward(const cpu::Context& context,
                               const EmbeddingBackwardArgs<float>& args);

absl::Status EmbeddingForward(const cuda::Context& context, const EmbeddingForwardArgs<bf16>& args);
absl::Status EmbeddingBackward(const cuda::Context& context,
                               const EmbeddingBackwardArgs<bf16>& args);

// Scratch of the backward op on any CUDA context, about 20 bytes a row.
constexpr int64_t CudaEmbeddingScratchBytes(int64_t max_rows) {
  return cuda::RowOrderScratchBytes(max_rows);
}

}  // namespace penstock
