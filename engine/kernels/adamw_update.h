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

#include "engine/base/bf16.h"
#include "engine/kernels/adamw_scalars.h"
#include "engine/kernels/isa_dispatch.h"
#include "engine/memory/planes.h"
#include "engine/plan/update_part.h"

namespace penstock::adamw {

// Gradient is float or bf16.
template <typename Gradient>
struct Range {
  uint16_t* hi;
  int16_t* lo;
  float* m;
  float* v;
  const Gradient* gradient;
  int64_t count;
};

template <UpdatePart part, typename Gradient>
void UpdatePortable(const Scalars& scalars, const Range<Gradient>& range);
// REQUIRES: the machine has AVX2, or AVX-512 F, BW, VL and DQ.
template <UpdatePart part, typename Gradient>
void UpdateAvx2(const Scalars& scalars, const Range<Gradient>& range);
template <UpdatePart part, typename Gradient>
void UpdateAvx512(const Scalars& scalars, const Range<Gradient>& range);

// REQUIRES: the machine has `isa`.
template <UpdatePart part, typename Gradient>
void UpdateRange(CpuIsa isa, const Scalars& scalars, const Range<Gradient>& range) {
  switch (isa) {
    case CpuIsa::kAvx512:
      return UpdateAvx512<part>(scalars, range);
    case CpuIsa::kAvx2:
      return UpdateAvx2<part>(scalars, range);
    case CpuIsa::kPortable:
      return UpdatePortable<part>(scalars, range);
  }
}

PENSTOCK_ALWAYS_INLINE float GradientAt(const float* gradient, int64_t i) { return gradient[i]; }
PENSTOCK_ALWAYS_INLINE float GradientAt(const bf16* gradient, int64_t i) {
  return ToFloat(gradient[i]);
}

// The reference for the order of operations, and the tail of the vector loops.
template <UpdatePart part, typename Gradient>
PENSTOCK_ALWAYS_INLINE void UpdateOne(const Scalars& s, const Range<Gradient>& range, int64_t i) {
  const float g = GradientAt(range.gradient, i) * s.gradient_scale;
  float m = range.m[i];
  m = (s.m_base_is_gradient ? g : m) + s.m_weight * (g - m);
  const float v = range.v[i] * s.beta2 + s.one_minus_beta2 * g * g;
  if constexpr (ChangesMoments(part)) {
    range.m[i] = m;
    range.v[i] = v;
  }
  if constexpr (ChangesWeights(part)) {
    float w = Join(range.hi[i], range.lo[i]) * s.keep;
    w += s.minus_step_size * m / (std::sqrt(v) / s.sqrt_correction2 + s.epsilon);
    const SplitValue split = Split(w);
    range.hi[i] = split.hi;
    range.lo[i] = split.lo;
  }
}

}  // namespace penstock::adamw
