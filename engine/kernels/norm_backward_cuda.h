// Backward of RMSNorm on CUDA, for rows of activations and for their heads. Internal to the ops.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "engine/base/bf16.h"
#include "engine/kernels/context.h"

namespace penstock::cuda {

// count rows of `cols` elements are normed; row r lies at
// (r / rows_per_stride) * stride + (r % rows_per_stride) * cols of each tensor.
struct NormedRows {
  const bf16* dy;
  int64_t dy_stride;
  const bf16* x;
  int64_t x_stride;
  const bf16* w;      // [cols]
  const float* rstd;  // [count]
  bf16* dx;
  int64_t dx_stride;
  WriteMode dx_mode;
  int64_t count, rows_per_stride, cols;
};

// Queues dx and dw [cols] by the maths of rmsnorm.h, aliasing as there, in one pass over the
// tensors. REQUIRES: count >= 0, rows_per_stride and cols >= 1.
absl::Status NormBackward(const Context& context, std::string_view op, const NormedRows& rows,
                          float* dw, WriteMode dw_mode);

}  // namespace penstock::cuda
