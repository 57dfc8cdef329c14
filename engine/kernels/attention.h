// Causal attention over packed documents, with grouped key/value heads and an optional sliding
// window.
//   s[q,k]   = scale * dot(Q[q,h], K[k,g])           g = h / (num_heads / num_kv_heads)
//   p[q,:]   = softmax over the keys that q sees      out[q,h] = sum_k p[q,k] * V[k,g]
//   lse[q,h] = log sum_k exp(s[q,k])                  kept for the backward op
// Query q sees key k if both are in the same document, k <= q and, with window W > 0,
// k > q - W (so a window of 1 is the token itself).
//
// Shapes    q, dq: element (r,h,i) at r * stride + h * head_dim + i, h < num_heads; k, v, dk, dv
//           likewise with h < num_kv_heads. out, dout [rows, num_heads * head_dim]; lse
//           [rows, num_heads]. document_starts [num_documents + 1]: ascending, first 0, last
//           rows; empty documents are allowed.
// Numerics  f32; probabilities are computed again in the backward op from lse, nothing of size
//           rows x rows is kept.
// Repeats   a document's results are the same bits whatever is packed beside it and wherever
//           it lies: tiles start at the document, and no sum crosses it.
// Aliasing  none, but q, k, v may be views of one activation and dq, dk, dv of another.
// Scratch   scratch_bytes >= CpuAttentionScratchBytes() or, backward,
// LeastCudaAttentionScratchBytes();
//           contents are undefined before and after.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/kernels/context.h"

namespace penstock {

template <typename T>
struct AttentionForwardArgs {
  const T* q;
  int64_t q_stride;  // elements between rows
  const T* k;
  int64_t k_stride;
  const T* v;
  int64_t v_stride;
  T* out;
  float* lse;
  const int32_t* document_starts;
  int64_t num_documents;
  int64_t rows, num_heads, num_kv_heads, head_dim;
  float scale;
  int64_t window;  // 0: all earlier tokens of the document
  void* scratch;
  int64_t scratch_bytes;
  const int32_t* host_document_starts = nullptr;  // as in the backward op
};

template <typename T>
struct AttentionBackwardArgs {
  const T* q;
  int64_t q_stride;
  const T* k;
  int64_t k_stride;
  const T* v;
  int64_t v_stride;
  const T* out;
  const T* dout;
  const float* lse;
  T* dq;  // dq, dk, dv are overwritten, all rows and heads
  int64_t dq_stride;
  T* dk;
  int64_t dk_stride;
  T* dv;
  int64_t dv_stride;
  const int32_t* document_starts;
  int64_t num_documents;
  int64_t rows, num_heads, num_kv_heads, head_dim;
  float scale;
  int64_t window;
  void* scratch;
  int64_t scratch_bytes;
  // CUDA: document_starts on the host, read before the op returns. With them it may use cuDNN.
  const int32_t* host_document_starts = nullptr;
};

absl::Status AttentionForward(const cpu::Context& context, const AttentionForwardArgs<float>& args);
absl::Status AttentionBackward(const cpu::Context& context,
                               const AttentionBackwardArgs<float>& args);

// Scratch for either op on a CPU context whose pool has this many threads, whatever the shape.
int64_t CpuAttentionScratchBytes(int threads);

inline constexpr int64_t kLargestCudaHeadDim = 256;
// Wider heads go through kernels of our own: cuDNN's backward op has them on some architectures
// and versions only, and no test of ours has run it with them.
inline constexpr int64_t kLargestCudnnHeadDim = 128;
// CUDA: head_dim up to kLargestCudaHeadDim, else Unimplemented. Tensor cores; probabilities and
// their gradients are rounded to bf16 before they are multiplied. By cuDNN where it can
// (attention_cudnn.h says when), which sums dk and dv over the query heads of a group from bf16,
// and takes small blocks of host memory at each call; else by kernels of our own. The choice
// depends on the shape alone.
absl::Status AttentionForward(const cuda::Context& context, const AttentionForwardArgs<bf16>& args);
absl::Status AttentionBackward(const cuda::Context& context,
                               const AttentionBackwardArgs<bf16>& args);

// What the size of scratch depends on; `rows` of a micro-batch.
struct AttentionShape {
  int64_t rows, num_heads, num_kv_heads, head_dim;
};

// What the backward op cannot do without on CUDA: dot(dout, out) of each row and head.
constexpr int64_t LeastCudaAttentionScratchBytes(int64_t rows, int64_t num_heads) {
  return rows * num_heads * static_cast<int64_t>(sizeof(float));
}
// What either op makes use of on CUDA, however the rows are cut into documents: up to 1 GiB and a
// little, less for few rows, and for heads too wide for cuDNN the least. With less, longer
// documents go through our own kernels, which changes bits: all of a job's programs are to have the
// same.
int64_t CudaAttentionScratchBytes(const AttentionShape& shape);

}  // namespace penstock
