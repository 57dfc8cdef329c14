// What the kernels of a decoder ask for, at most: DecoderShape::kernel_scratch_bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/kernels/attention.h"
#include "engine/kernels/embedding.h"
#include "engine/model/model_spec.h"

namespace penstock {

inline int64_t CpuKernelScratchBytes(int threads) { return CpuAttentionScratchBytes(threads); }

inline int64_t CudaKernelScratchBytes(const ModelSpec& spec, int64_t tokens) {
  return std::max(
      CudaAttentionScratchBytes({tokens, spec.num_heads, spec.num_kv_heads, spec.head_dim}),
      CudaEmbeddingScratchBytes(tokens));
}

}  // namespace penstock
