// a[i] = b[i] + scalar * c[i] with stores past the caches: what this machine's memory gives to
// a loop that reads two streams and writes one, and the yardstick for AdamW.
#pragma once

#include <cstdint>

#include "engine/kernels/context.h"

namespace penstock {

// Bytes that the triad moves for an element; a streaming store reads nothing.
inline constexpr int64_t kTriadBytes = 12;

// REQUIRES: a is 64-byte aligned; count is a multiple of 16 Ki.
void Triad(const cpu::Context& context, float* a, const float* b, const float* c, int64_t count);

}  // namespace penstock
