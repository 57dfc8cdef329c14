// Instruction sets that the CPU ops have variants for. A variant changes the speed, never the
// bits: no fused multiply-add, and sums have the same lanes in each.
#pragma once

#include <cstdint>

namespace penstock {

enum class CpuIsa : uint8_t { kPortable, kAvx2, kAvx512 };

// The best that this machine runs; asked once.
CpuIsa BestCpuIsa();

}  // namespace penstock
