// Whole-array moves on all threads. Memory-bound.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/kernels/context.h"

namespace penstock {

// out[i] = Join(hi[i], lo[i]): the exact fp32 weights (memory/planes.h).
absl::Status JoinPlanes(const cpu::Context& context, const uint16_t* hi, const int16_t* lo,
                        int64_t count, float* out);
// destination[i] = source[i]. The arrays do not overlap.
absl::Status CopyFloats(const cpu::Context& context, float* destination, const float* source,
                        int64_t count);
absl::Status FillFloats(const cpu::Context& context, float* destination, float value,
                        int64_t count);

}  // namespace penstock
