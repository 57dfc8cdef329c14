// One loop over the 16 lanes of a group, which the compiler turns into vector code: Philox is
// multiplications, and logarithm, sine and cosine are polynomials without branches.
#include "engine/train/normal_values.h"

#include <bit>
#include <cmath>

#include "engine/kernels/isa_dispatch.h"
#include "engine/memory/planes.h"

namespace penstock {
namespace {

constexpr int kLanes = 16;
constexpr int kPhiloxRounds = 10;
constexpr float kHalfPi = 1.57079632679489662f;

struct Words {
  uint32_t w0, w1, w2, w3;
};

PENSTOCK_ALWAYS_INLINE Words Philox(Words c, uint32_t low_key, uint32_t high_key) {
#pragma GCC unroll 10
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c.w0;
    const uint64_t b = uint64_t{0xCD9E8D57} * c.w2;
    c = {static_cast<uint32_t>(b >> 32) ^ c.w1 ^ low_key, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c.w3 ^ high_key, static_cast<uint32_t>(a)};
    low_key += 0x9E3779B9;
    high_key += 0xBB67AE85;
  }
  return c;
}

// ln x of a normal x > 0, within 2 ulp: Cephes' logf, x = m 2^e with m in [sqrt(1/2), sqrt(2)).
PENSTOCK_ALWAYS_INLINE float Log(float x) {
  constexpr uint32_t kSqrtHalf = 0x3F3504F3;
  const uint32_t bits = std::bit_cast<uint32_t>(x) - kSqrtHalf;
  const float e = static_cast<float>(static_cast<int32_t>(bits) >> 23);
  const float r = std::bit_cast<float>((bits & 0x007FFFFFu) + kSqrtHalf) - 1.0f;
  float p = 7.0376836292e-2f;
  p = p * r - 1.1514610310e-1f;
  p = p * r + 1.1676998740e-1f;
  p = p * r - 1.2420140846e-1f;
  p = p * r + 1.4249322787e-1f;
  p = p * r - 1.6668057665e-1f;
  p = p * r + 2.0000714765e-1f;
  p = p * r - 2.4999993993e-1f;
  p = p * r + 3.3333331174e-1f;
  const float square = r * r;
  const float tail = (p * r * square - 2.12194440e-4f * e) - 0.5f * square;
  return (r + tail) + 0.693359375f * e;
}

PENSTOCK_ALWAYS_INLINE float Radius(uint32_t word) {
  const float uniform = (static_cast<float>(static_cast<int32_t>(word >> 1)) + 0.5f) * 0x1p-31f;
  return std::sqrt(-2.0f * Log(uniform));
}

struct Point {
  float x, y;
};

// Cosine and sine of pi/2 (q + f - 1/2), q the two high bits and f the other thirty as a
// fraction. Cephes' polynomials on [-pi/4, pi/4], then q quarter turns.
PENSTOCK_ALWAYS_INLINE Point UnitCircle(uint32_t word) {
  const int32_t centred = static_cast<int32_t>(word & 0x3FFFFFFFu) - 0x20000000;
  const float t = static_cast<float>(centred) * (kHalfPi * 0x1p-30f);
  const float z = t * t;
  const float sine =
      ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * t + t;
  const float cosine =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z -
      0.5f * z + 1.0f;
  const uint32_t swap = (word & 0x40000000u) != 0 ? ~0u : 0u;
  const uint32_t s = std::bit_cast<uint32_t>(sine), c = std::bit_cast<uint32_t>(cosine);
  // Quarter turns: (c, s), (-s, c), (-c, -s), (s, -c).
  const uint32_t x = ((c & ~swap) | (s & swap)) ^ ((word ^ (word << 1)) & 0x80000000u);
  const uint32_t y = ((s & ~swap) | (c & swap)) ^ (word & 0x80000000u);
  return {std::bit_cast<float>(x), std::bit_cast<float>(y)};
}

struct WritePlanes {
  PENSTOCK_ISA_BODY void Group(const NormalStream& stream, uint64_t first_counter,
                               uint16_t* __restrict hi, int16_t* __restrict lo) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      // The first counter is a multiple of 16, so the addition never carries.
      const Words w =
          Philox({static_cast<uint32_t>(first_counter) | lane,
                  static_cast<uint32_t>(first_counter >> 32), stream.stream, 0},
                 static_cast<uint32_t>(stream.seed), static_cast<uint32_t>(stream.seed >> 32));
      const float r0 = stream.deviation * Radius(w.w0), r1 = stream.deviation * Radius(w.w2);
      const Point p0 = UnitCircle(w.w1), p1 = UnitCircle(w.w3);
      const SplitValue x[4] = {Split(r0 * p0.x), Split(r0 * p0.y), Split(r1 * p1.x),
                               Split(r1 * p1.y)};
      for (int word = 0; word < 4; ++word) {
        hi[word * kLanes + lane] = x[word].hi;
        lo[word * kLanes + lane] = x[word].lo;
      }
    }
  }

  PENSTOCK_ISA_BODY void Run(const NormalStream& stream, int64_t first, int64_t count, uint16_t* hi,
                             int16_t* lo) {
    uint64_t counter = static_cast<uint64_t>(first) / 4;
    int64_t i = 0;
    for (; i + kNormalGroup <= count; i += kNormalGroup, counter += kLanes) {
      Group(stream, counter, hi + i, lo + i);
    }
    if (i == count) return;
    uint16_t last_hi[kNormalGroup];
    int16_t last_lo[kNormalGroup];
    Group(stream, counter, last_hi, last_lo);
    for (int64_t j = 0; i < count; ++i, ++j) {
      hi[i] = last_hi[j];
      lo[i] = last_lo[j];
    }
  }
};

}  // namespace

void WriteNormalPlanes(const NormalStream& stream, int64_t first, int64_t count, uint16_t* hi,
                       int16_t* lo, CpuIsa isa) {
  RunAsIsa<WritePlanes>(isa, stream, first, count, hi, lo);
}

}  // namespace penstock
