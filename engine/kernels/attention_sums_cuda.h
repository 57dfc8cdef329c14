// Sums in f32 of partial gradients in bf16. Internal to attention_blocks_cuda.cc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "engine/base/bf16.h"

namespace penstock::cuda::attention {

// sum[i] = part[i], or sum[i] + part[i] unless `first`, for i < count.
// REQUIRES: count % 8 == 0 and both aligned to 16 bytes.
absl::Status AddPart(const bf16* part, int64_t count, bool first, float* sum, cudaStream_t stream);

// to[r * to_stride + i] = sum[r * width + i], rounded to nearest, for r < rows and i < width.
// REQUIRES: width % 8 == 0, to_stride % 8 == 0 and both aligned to 16 bytes.
struct RoundRowsArgs {
  const float* sum;
  bf16* to;
  int64_t to_stride;
  int64_t rows, width;
};
absl::Status RoundRows(const RoundRowsArgs& args, cudaStream_t stream);

}  // namespace penstock::cuda::attention
