// 16 elements a turn, so that a vector of each plane is full.
#include <immintrin.h>

#include "engine/kernels/adamw_update.h"

namespace penstock::adamw {
namespace {

struct Vectors {
  PENSTOCK_TARGET_AVX2 explicit Vectors(const Scalars& s)
      : gradient_scale(_mm256_set1_ps(s.gradient_scale)),
        keep(_mm256_set1_ps(s.keep)),
        m_weight(_mm256_set1_ps(s.m_weight)),
        m_base_is_gradient(_mm256_castsi256_ps(_mm256_set1_epi32(s.m_base_is_gradient ? -1 : 0))),
        beta2(_mm256_set1_ps(s.beta2)),
        one_minus_beta2(_mm256_set1_ps(s.one_minus_beta2)),
        minus_step_size(_mm256_set1_ps(s.minus_step_size)),
        sqrt_correction2(_mm256_set1_ps(s.sqrt_correction2)),
        epsilon(_mm256_set1_ps(s.epsilon)) {}

  __m256 gradient_scale, keep, m_weight, m_base_is_gradient, beta2, one_minus_beta2,
      minus_step_size, sqrt_correction2, epsilon;
};

PENSTOCK_TARGET_AVX2 inline void StorePlane(void* to, __m256i value) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), value);
}

PENSTOCK_TARGET_AVX2 inline __m256 LoadGradient(const float* from) { return _mm256_loadu_ps(from); }
PENSTOCK_TARGET_AVX2 inline __m256 LoadGradient(const bf16* from) {
  const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
}

// The bits of the new w, if weights change.
template <UpdatePart part, typename Gradient>
PENSTOCK_TARGET_AVX2 inline __m256i UpdateEight(const Vectors& s, const Range<Gradient>& range,
                                                int64_t i) {
  const __m256 g = _mm256_mul_ps(LoadGradient(range.gradient + i), s.gradient_scale);
  __m256 m = _mm256_loadu_ps(range.m + i);
  const __m256 base = _mm256_blendv_ps(m, g, s.m_base_is_gradient);
  m = _mm256_add_ps(base, _mm256_mul_ps(s.m_weight, _mm256_sub_ps(g, m)));
  const __m256 v = _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(range.v + i), s.beta2),
                                 _mm256_mul_ps(_mm256_mul_ps(s.one_minus_beta2, g), g));
  if constexpr (ChangesMoments(part)) {
    _mm256_storeu_ps(range.m + i, m);
    _mm256_storeu_ps(range.v + i, v);
  }
  if constexpr (!ChangesWeights(part)) return __m256i{};
  const __m128i hi = _mm_loadu_si128(reinterpret_cast<const __m128i*>(range.hi + i));
  const __m128i lo = _mm_loadu_si128(reinterpret_cast<const __m128i*>(range.lo + i));
  const __m256i joined =
      _mm256_add_epi32(_mm256_slli_epi32(_mm256_cvtepu16_epi32(hi), 16), _mm256_cvtepi16_epi32(lo));
  __m256 w = _mm256_mul_ps(_mm256_castsi256_ps(joined), s.keep);
  const __m256 denominator =
      _mm256_add_ps(_mm256_div_ps(_mm256_sqrt_ps(v), s.sqrt_correction2), s.epsilon);
  w = _mm256_add_ps(w, _mm256_div_ps(_mm256_mul_ps(s.minus_step_size, m), denominator));
  return _mm256_castps_si256(w);
}

// The low halves of 16 values; packus works within 128-bit lanes, hence the permutation.
PENSTOCK_TARGET_AVX2 inline __m256i PackLowHalves(__m256i first, __m256i second) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(first, second), 0b11011000);
}

template <UpdatePart part, typename Gradient>
PENSTOCK_TARGET_AVX2 int64_t UpdateWhole(const Vectors& s, const Range<Gradient>& range) {
  const __m256i half = _mm256_set1_epi32(0x8000);
  const __m256i low_mask = _mm256_set1_epi32(0xFFFF);
  int64_t i = 0;
  for (; i + 16 <= range.count; i += 16) {
    const __m256i first = UpdateEight<part>(s, range, i);
    const __m256i second = UpdateEight<part>(s, range, i + 8);
    if constexpr (!ChangesWeights(part)) continue;
    StorePlane(range.hi + i, PackLowHalves(_mm256_srli_epi32(_mm256_add_epi32(first, half), 16),
                                           _mm256_srli_epi32(_mm256_add_epi32(second, half), 16)));
    StorePlane(range.lo + i, PackLowHalves(_mm256_and_si256(first, low_mask),
                                           _mm256_and_si256(second, low_mask)));
  }
  return i;
}

}  // namespace

template <UpdatePart part, typename Gradient>
PENSTOCK_TARGET_AVX2 void UpdateAvx2(const Scalars& scalars, const Range<Gradient>& range) {
  const Vectors vectors(scalars);
  int64_t i = UpdateWhole<part>(vectors, range);
  for (; i < range.count; ++i) UpdateOne<part>(scalars, range, i);
}

template void UpdateAvx2<UpdatePart::kAll>(const Scalars&, const Range<float>&);
template void UpdateAvx2<UpdatePart::kAll>(const Scalars&, const Range<bf16>&);
template void UpdateAvx2<UpdatePart::kWeights>(const Scalars&, const Range<float>&);
template void UpdateAvx2<UpdatePart::kWeights>(const Scalars&, const Range<bf16>&);
template void UpdateAvx2<UpdatePart::kMoments>(const Scalars&, const Range<float>&);
template void UpdateAvx2<UpdatePart::kMoments>(const Scalars&, const Range<bf16>&);

}  // namespace penstock::adamw
