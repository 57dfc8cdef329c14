#include "engine/train/weight_convert.h"

#include <bit>
#include <cstring>

namespace penstock {
namespace {

constexpr uint32_t kSignBit = 0x8000'0000u;
constexpr uint32_t kInfinity = 0x7f80'0000u;
constexpr uint32_t kExponentShift = uint32_t{127 - 15} << 23;  // between the biases of the types

// Magnitudes from here on round to infinity.
constexpr uint32_t kHalfOverflow = 0x477f'f000u;      // 65520
constexpr uint32_t kBFloat16Overflow = 0x7f7f'8000u;  // halfway beyond the largest
constexpr uint32_t kSmallestNormalHalf = 0x3880'0000u;

uint32_t Magnitude(float value) { return std::bit_cast<uint32_t>(value) & ~kSignBit; }

uint32_t OverflowOf(WeightType type) {
  switch (type) {
    case WeightType::kFloat32:
      return kInfinity;
    case WeightType::kFloat16:
      return kHalfOverflow;
    case WeightType::kBFloat16:
      return kBFloat16Overflow;
  }
  return kInfinity;
}

}  // namespace

float HalfToFloat(uint16_t half) {
  uint32_t bits = uint32_t{half & 0x7fffu} << 13;
  const uint32_t exponent = bits & 0x0f80'0000u;
  bits += kExponentShift;
  if (exponent == 0x0f80'0000u) {
    bits += kExponentShift;  // Inf and NaN stay so
  } else if (exponent == 0) {
    // A subnormal: give it the exponent of 2^-14 with a hidden bit, then take that bit away.
    bits += uint32_t{1} << 23;
    bits = std::bit_cast<uint32_t>(std::bit_cast<float>(bits) -
                                   std::bit_cast<float>(kSmallestNormalHalf));
  }
  return std::bit_cast<float>(bits | uint32_t{half & 0x8000u} << 16);
}

uint16_t FloatToHalf(float value) {
  const uint16_t sign = static_cast<uint16_t>((std::bit_cast<uint32_t>(value) & kSignBit) >> 16);
  const uint32_t bits = Magnitude(value);
  if (bits > kInfinity) return sign | 0x7e00u;
  if (bits >= kHalfOverflow) return sign | 0x7c00u;
  if (bits < kSmallestNormalHalf) {
    // The spacing of fp32 at 0.5 is that of subnormal halves, so the addition rounds.
    const float rounded = std::bit_cast<float>(bits) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f00'0000u));
  }
  const uint32_t rounded = bits - kExponentShift + 0xfffu + ((bits >> 13) & 1u);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (Magnitude(value) > kInfinity) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void WidenWeights(WeightType type, const std::byte* raw, std::span<float> out) {
  if (type == WeightType::kFloat32) {
    std::memcpy(out.data(), raw, out.size_bytes());
    return;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, raw + 2 * i, sizeof(bits));
    out[i] = type == WeightType::kFloat16 ? HalfToFloat(bits)
                                          : std::bit_cast<float>(uint32_t{bits} << 16);
  }
}

void NarrowWeights(WeightType type, std::span<const float> values, std::byte* raw) {
  if (type == WeightType::kFloat32) {
    std::memcpy(raw, values.data(), values.size_bytes());
    return;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits =
        type == WeightType::kFloat16 ? FloatToHalf(values[i]) : FloatToBFloat16(values[i]);
    std::memcpy(raw + 2 * i, &bits, sizeof(bits));
  }
}

int64_t FindNonFinite(std::span<const float> values, WeightType type) {
  const uint32_t overflow = OverflowOf(type);
  bool any = false;  // first without a branch for each value
  for (const float value : values) any |= Magnitude(value) >= overflow;
  if (!any) return -1;
  for (size_t i = 0; i < values.size(); ++i) {
    if (Magnitude(values[i]) >= overflow) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace penstock
