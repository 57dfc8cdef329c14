// Attention by cuDNN's fused graphs: a cache of plans, each for one shape of call.
//
// cuDNN is loaded when the first object is made, not linked: a binary runs without it, and then
// Create() says so. A build without cuDNN's headers has no_cudnn/ instead, which always says so.
//
// Documents are ragged: a plan has room for `batch` documents of up to `longest` rows, and arrays
// on the device say how long each is and where it begins. Documents beyond the last have length 0.
// Rows outside the documents are not written and change nothing.
//
// Repeats   bit for bit, and a document's bits do not depend on the plan's room. The backward plan
//           is cuDNN's deterministic one.
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock::cuda {

// Strides are in elements between rows; a row's heads lie side by side. `lse` is [rows,
// lse_stride].
struct CudnnAttentionShape {
  bool backward;
  bool causal;  // else a query sees all keys of its document
  int64_t batch, longest;
  int64_t num_heads, num_kv_heads, head_dim;
  int64_t q_stride, k_stride, v_stride, out_stride, lse_stride;
  int64_t dq_stride, dk_stride, dv_stride;  // backward
  int64_t window;                           // 0: none; causal only
  float scale;

  auto operator<=>(const CudnnAttentionShape&) const = default;
};

// Device pointers. Counts [batch] in rows of queries and of keys, offsets [batch + 1] in elements;
// `out_offsets` serves dout too.
struct CudnnAttentionArrays {
  const void *q, *k, *v;
  const void* out;   // written by forward
  const float* lse;  // likewise
  const void* dout;  // backward, as the rest
  void *dq, *dk, *dv;
  const int32_t *q_counts, *k_counts;
  const int64_t *q_offsets, *k_offsets, *v_offsets, *out_offsets, *lse_offsets;
  const int64_t *dq_offsets, *dk_offsets, *dv_offsets;
};

class CudnnAttention {
 public:
  // The oldest version that the tests have run with.
  static constexpr int64_t kOldestVersion = 91400;

  // Work is queued on `stream`, of the current device. Unavailable, with the reason and the way
  // out, without cuDNN or with one older than kOldestVersion.
  static absl::StatusOr<std::unique_ptr<CudnnAttention>> Create(cudaStream_t stream);
  virtual ~CudnnAttention() = default;

  // Bytes of workspace that Run() needs for this shape. Builds the plan when it meets the shape
  // first: tenths of a second, up to two seconds where cuDNN compiles a kernel. Unimplemented, with
  // cuDNN's words, if it has none; that answer is kept as well; stderr has the first.
  virtual absl::StatusOr<int64_t> Prepare(const CudnnAttentionShape& shape) = 0;

  // Queues one call. REQUIRES: Prepare(shape) was OK. cuDNN takes small blocks of host memory.
  virtual absl::Status Run(const CudnnAttentionShape& shape, const CudnnAttentionArrays& arrays,
                           void* workspace) = 0;
};

}  // namespace penstock::cuda
