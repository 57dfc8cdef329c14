// The update of one range on the calling thread, in three instruction sets. Internal to
// adamw*.cc; the contract is adamw.h's.
//
// Ordinary stores: every line written has just been read, so a store past the caches saves no
// read, and it pushes the line out of the cache it lies in. Measured, such stores cost AVX-512 a
// third of its rate and AVX2, whose stores fill half a line, two thirds
// (bench/results/2026-11-27-adamw-cpu.md).
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/kernels/adamw.h"
#include "engine/kernels/isa_dispatch.h"
#include "engine/memory/planes.h"

namespace penstock::adamw {

// torch multiplies arrays by scalars that it combined in f64 and rounded once; so do these.
struct Scalars {
  float gradient_scale;
  float keep;  // 1 - learning_rate * weight_decay
  // m = base + m_weight * (g - m), base being m or, where torch's lerp changes its form
  // (1 - beta1 >= 0.5), g.
  float m_weight;
  bool m_base_is_gradient;
  float beta2;
  float one_minus_beta2;
  float minus_step_size;  // -learning_rate / bias_correction1
  float sqrt_correction2;
  float epsilon;
};

struct Range {
  uint16_t* hi;
  int16_t* lo;
  float* m;
  float* v;
  const float* gradient;
  int64_t count;
};

void UpdatePortable(const Scalars& scalars, const Range& range);
// REQUIRES: the machine has AVX2, or AVX-512 F, BW, VL and DQ.
void UpdateAvx2(const Scalars& scalars, const Range& range);
void UpdateAvx512(const Scalars& scalars, const Range& range);

// The reference for the order of operations, and the tail of the vector loops.
PENSTOCK_ALWAYS_INLINE void UpdateOne(const Scalars& s, const Range& range, int64_t i) {
  const float g = range.gradient[i] * s.gradient_scale;
  float w = Join(range.hi[i], range.lo[i]) * s.keep;
  float m = range.m[i];
  m = (s.m_base_is_gradient ? g : m) + s.m_weight * (g - m);
  const float v = range.v[i] * s.beta2 + s.one_minus_beta2 * g * g;
  w += s.minus_step_size * m / (std::sqrt(v) / s.sqrt_correction2 + s.epsilon);
  const SplitValue split = Split(w);
  range.hi[i] = split.hi;
  range.lo[i] = split.lo;
  range.m[i] = m;
  range.v[i] = v;
}

}  // namespace penstock::adamw
