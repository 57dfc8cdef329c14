#include "bench/triad.h"

#include <immintrin.h>

#include "engine/kernels/isa_dispatch.h"
#include "engine/kernels/parallel.h"

namespace penstock {
namespace {

constexpr float kScalar = 3.0f;

// One body for all instruction sets would not stream, so each has its own.
PENSTOCK_TARGET_AVX512 void TriadAvx512(float* a, const float* b, const float* c, int64_t count) {
  const __m512 scalar = _mm512_set1_ps(kScalar);
  for (int64_t i = 0; i < count; i += 16) {
    _mm512_stream_ps(a + i, _mm512_add_ps(_mm512_loadu_ps(b + i),
                                          _mm512_mul_ps(scalar, _mm512_loadu_ps(c + i))));
  }
  _mm_sfence();
}

// SSE2, which every x86-64 has.
void TriadPortable(float* a, const float* b, const float* c, int64_t count) {
  const __m128 scalar = _mm_set1_ps(kScalar);
  for (int64_t i = 0; i < count; i += 4) {
    _mm_stream_ps(a + i, _mm_add_ps(_mm_loadu_ps(b + i), _mm_mul_ps(scalar, _mm_loadu_ps(c + i))));
  }
  _mm_sfence();
}

}  // namespace

void Triad(const cpu::Context& context, float* a, const float* b, const float* c, int64_t count) {
  ParallelBlocks(context, count, 16 * 1024, [&](int64_t begin, int64_t end) {
    if (BestCpuIsa() == CpuIsa::kAvx512) {
      TriadAvx512(a + begin, b + begin, c + begin, end - begin);
    } else {
      TriadPortable(a + begin, b + begin, c + begin, end - begin);
    }
  });
}

}  // namespace penstock
