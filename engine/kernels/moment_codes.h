// AdamW's moments in fewer bits than fp32: what the codes mean and how values become codes.
// Internal to adamw_small_moments*; the contract is adamw_small_moments.h's.
//
// kBfloat16     the value's upper 16 bits.
// kInt8Blocks   A block of kMomentBlock elements has one scale, a power of two in fp32. A code is a
//               small floating-point number, without places for infinities and NaN:
//                 v  q = code            0: 0, else  scale * 2^(q >> 3) * (1 + (q & 7) / 8)
//                 m  q = code & 0x7f     the same, and negative if code & 0x80
//               so v spans 31 powers of two below the block's largest, and m 15: the same span of
//               gradients, as v is of their squares. Steps are 1/8 to 1/16 of the value everywhere
//               in it. Codes of equal steps (the 8-bit integers of the name) would lose what is
//               small in its block, and with it the adaptivity that v is there for; "8-bit
//               Optimizers via Block-wise Quantization" (Dettmers et al., 2022) has the blocks and
//               another code of unequal steps for that. With a power of two as the scale a value
//               that has a code has one with every other scale too, so that scales follow the
//               gradients without rounding anew what does not change.
//
// Rounding is stochastic: to one of the two neighbours, with the chance that makes the mean exact
// (to 2^-17 of the step between them). To the nearest, v would stand still, since a step changes it
// by 1 - beta2 of itself, far less than half of what lies between codes. The one exception: a v
// below the smallest code of its block becomes that code, never 0, which would make the element's
// next updates as large as epsilon allows.
//
// What is not finite has codes that are not finite.
//
// The random bits are a function of seed, update, block and element alone (RoundingStream): the
// same for any number of threads, any order and any machine.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "engine/kernels/isa_dispatch.h"
#include "engine/plan/moment_type.h"

namespace penstock::moment_codes {

// One step of SplitMix64 (Steele, Lea, Flood, 2014).
constexpr uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The key of the random bits of a group of up to kMomentBlock elements, of which `element` of the
// block of weights is the first.
constexpr uint64_t GroupKey(uint64_t stream, int64_t element) {
  return Mix(stream + static_cast<uint64_t>(element));
}

// 32 bits for the element at `lane` of a group; m takes the upper half, v the lower. The
// multipliers are those of "lowbias32" (C. Wellons, hash-prospector).
PENSTOCK_ALWAYS_INLINE uint32_t RandomBits(uint64_t key, uint32_t lane) {
  uint32_t x = static_cast<uint32_t>(key) + lane * 0x9e3779b9u;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = ((x ^ (x >> 15)) + static_cast<uint32_t>(key >> 32)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

inline constexpr uint32_t kMagnitude = 0x7fffffff;
inline constexpr uint32_t kInfinity = 0x7f800000;
// Of an fp32 that a code does not keep.
inline constexpr int kLostBits = 20;
inline constexpr int kMantissaBits = 23;
inline constexpr uint32_t kHighestM = 127, kHighestV = 255;
inline constexpr uint32_t kExponentsM = kHighestM >> 3, kExponentsV = kHighestV >> 3;

PENSTOCK_ALWAYS_INLINE uint32_t RoundToBf16(uint32_t bits, uint32_t random) {
  const bool finite = (bits & kInfinity) != kInfinity;
  return (bits + (finite ? random : 0)) >> 16;
}

struct DecodeBf16 {
  PENSTOCK_ISA_BODY void Run(const uint16_t* values, int64_t count, float* out) {
    for (int64_t i = 0; i < count; ++i) out[i] = std::bit_cast<float>(uint32_t{values[i]} << 16);
  }
};

struct EncodeBf16 {
  PENSTOCK_ISA_BODY void Run(const float* m, const float* v, int64_t count, uint64_t key,
                             uint16_t* __restrict m_values, uint16_t* __restrict v_values) {
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t random = RandomBits(key, static_cast<uint32_t>(i));
      m_values[i] = static_cast<uint16_t>(RoundToBf16(std::bit_cast<uint32_t>(m[i]), random >> 16));
      v_values[i] =
          static_cast<uint16_t>(RoundToBf16(std::bit_cast<uint32_t>(v[i]), random & 0xffff));
    }
  }
};

struct DecodeInt8 {
  PENSTOCK_ISA_BODY void Run(const uint8_t* m_codes, float m_scale, const uint8_t* v_codes,
                             float v_scale, int64_t count, float* m, float* v) {
    const uint32_t m_base = std::bit_cast<uint32_t>(m_scale);
    const uint32_t v_base = std::bit_cast<uint32_t>(v_scale);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t code = m_codes[i], q = code & kHighestM;
      const uint32_t magnitude = q == 0 ? 0 : m_base + (q << kLostBits);
      m[i] = std::bit_cast<float>(magnitude | (code & 0x80) << 24);
    }
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t q = v_codes[i];
      v[i] = std::bit_cast<float>(q == 0 ? 0 : v_base + (q << kLostBits));
    }
  }
};

// The bits of the scale with which the largest of a block, rounded up or not, is in the highest
// exponent of its codes.
PENSTOCK_ALWAYS_INLINE uint32_t ScaleBits(uint32_t largest, uint32_t exponents) {
  constexpr uint32_t kNotFinite = 255;
  const uint32_t exponent =
      std::min((largest + ((1u << kLostBits) - 1)) >> kMantissaBits, kNotFinite);
  return (exponent > exponents ? exponent - exponents : 1) << kMantissaBits;
}

// 16 random bits in the middle of the 2^20 values that what is lost of a number has.
PENSTOCK_ALWAYS_INLINE int32_t SpreadBits(uint32_t random) {
  return static_cast<int32_t>((random << (kLostBits - 16)) + (1u << (kLostBits - 17)));
}

// Each loop is one that compilers vectorise.
struct EncodeInt8 {
  PENSTOCK_ISA_BODY void Run(const float* m, const float* v, int64_t count, uint64_t key,
                             uint8_t* __restrict m_codes, float* __restrict m_scale,
                             uint8_t* __restrict v_codes, float* __restrict v_scale) {
    uint32_t m_largest = 0, v_largest = 0;
    for (int64_t i = 0; i < count; ++i) {
      m_largest = std::max(m_largest, std::bit_cast<uint32_t>(m[i]) & kMagnitude);
      v_largest = std::max(v_largest, std::bit_cast<uint32_t>(v[i]) & kMagnitude);
    }
    const uint32_t m_base = ScaleBits(m_largest, kExponentsM);
    const uint32_t v_base = ScaleBits(v_largest, kExponentsV);
    *m_scale = std::bit_cast<float>(m_base);
    *v_scale = std::bit_cast<float>(v_base);
    // Between 0 and the smallest code of m there is none: what lies there becomes one of the two.
    const float least = std::bit_cast<float>(m_base + (1u << kLostBits));
    const float step = least * 0x1p-16f;
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t bits = std::bit_cast<uint32_t>(m[i]), magnitude = bits & kMagnitude;
      const uint32_t random = RandomBits(key, static_cast<uint32_t>(i)) >> 16;
      const int32_t above = static_cast<int32_t>(magnitude - m_base) + SpreadBits(random);
      const int32_t code = std::min(above >> kLostBits, static_cast<int32_t>(kHighestM));
      const float value = std::bit_cast<float>(magnitude);
      const float chance = (static_cast<float>(static_cast<int32_t>(random)) + 0.5f) * step;
      const int32_t below = value > chance ? 1 : 0;
      const int32_t q = magnitude >= m_base + (1u << kLostBits) ? code : below;
      m_codes[i] = static_cast<uint8_t>(static_cast<uint32_t>(q) | (bits >> 31) << 7);
    }
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t magnitude = std::bit_cast<uint32_t>(v[i]) & kMagnitude;
      const uint32_t random = RandomBits(key, static_cast<uint32_t>(i)) & 0xffff;
      const int32_t above = static_cast<int32_t>(magnitude - v_base) + SpreadBits(random);
      const int32_t code = std::clamp(above >> kLostBits, 1, static_cast<int32_t>(kHighestV));
      v_codes[i] = static_cast<uint8_t>(magnitude == 0 ? 0 : code);
    }
  }
};

}  // namespace penstock::moment_codes
