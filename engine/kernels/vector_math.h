// Scalar functions and sums for the bodies of RunForIsa (isa_dispatch.h), written so that the
// compiler can vectorise them without changing a result.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/kernels/isa_dispatch.h"

namespace penstock {

// e^x within 2 ulp for x <= 88; 0 below the least normal f32 (x < -87.33), -Inf included; NaN
// for NaN. The method is Cephes' expf; adding 1.5 * 2^23 rounds to an integer and leaves it in
// the low bits, so there is no conversion that NaN would make undefined.
PENSTOCK_ALWAYS_INLINE float Exp(float x) {
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRoundingMagic = 12582912.0f;
  const float shifted = x * kLog2E + kRoundingMagic;
  const float n = shifted - kRoundingMagic;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float e = p * (r * r) + r + 1.0f;
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) + 127u) << 23;
  const float value = e * std::bit_cast<float>(exponent);
  return x < -87.33f ? 0.0f : value;
}

inline constexpr int kLanes = 16;

// sum_i term(i) in f64, in lanes i % 16 that are then added in pairs: one order for every
// instruction set. `term` must be always_inline, and returns float or double.
template <typename Term>
PENSTOCK_ALWAYS_INLINE double LaneSum(int64_t n, Term term) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += term(i);
  for (int width = kLanes / 2; width >= 1; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

// The largest x[i], NaN left out; -Inf for none.
PENSTOCK_ALWAYS_INLINE float Max(const float* x, int64_t n) {
  constexpr float kLowest = -__builtin_inff();
  float lanes[kLanes];
  for (float& lane : lanes) lane = kLowest;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
    }
  }
  float best = kLowest;
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  for (const float lane : lanes) best = lane > best ? lane : best;
  return best;
}

}  // namespace penstock
