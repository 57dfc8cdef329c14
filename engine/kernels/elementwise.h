// Whole-array moves on all threads. Memory-bound.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/kernels/context.h"

namespace penstock {

// out[i] = Join(hi[i], lo[i]): the exact fp32 weights (memory/planes.h).
absl::Status JoinPlanes(const cpu::Context& context, const uint16_t* hi, const int16_t* lo,
                        int64_t count, float* out);
// memcpy: the arrays do not overlap.
absl::Status CopyBytes(const cpu::Context& context, void* destination, const void* source,
                       int64_t bytes);
absl::Status FillFloats(const cpu::Context& context, float* destination, float value,
                        int64_t count);

}  // namespace penstock
