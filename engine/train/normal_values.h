// Normally distributed values by counter: element i of a stream is a function of
// (seed, stream, i) alone, so any thread may make any part of it, in any order.
//
//   group     g = i / 64, lane l = i % 16, word j = i % 64 / 16
//   bits      w[0..3] = Philox4x32-10(counter {low, high of 16 g + l, stream, 0}, key seed)
//             (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)
//   radius    r(a) = sqrt(-2 ln(u / 2^31)), u = f32(f32(floor(a / 2)) + 1/2): in [1/2, 2^31]
//   angle     t(b) = pi/2 (floor(b / 2^30) + (b mod 2^30) / 2^30 - 1/2)
//   values    x[j] = r(w[0]) cos t(w[1]), r(w[0]) sin t(w[1]),        (Box and Muller, 1958)
//                    r(w[2]) cos t(w[3]), r(w[2]) sin t(w[3])
//
// Numerics  f32; within 4e-6 of the formula in exact arithmetic. No value exceeds 6.67.
// Repeats   the same bits in every instruction set.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu_isa.h"

namespace penstock {

inline constexpr int64_t kNormalGroup = 64;

struct NormalStream {
  uint64_t seed;
  uint32_t stream;
  float deviation;
};

// Writes elements first .. first + count - 1 of the stream, times `deviation`, as the two planes
// of memory/planes.h.
// REQUIRES: first % kNormalGroup == 0; isa <= BestCpuIsa().
void WriteNormalPlanes(const NormalStream& stream, int64_t first, int64_t count, uint16_t* hi,
                       int16_t* lo, CpuIsa isa);

}  // namespace penstock
