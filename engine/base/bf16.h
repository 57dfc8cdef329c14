// bf16: the upper half of an fp32, as the GPU computes with it. A plain struct, so that headers
// free of CUDA can name pointers to it.
#pragma once

#include <bit>
#include <cstdint>

namespace penstock {

struct bf16 {
  uint16_t bits;
};

constexpr float ToFloat(bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// To nearest, ties to even. A NaN stays a NaN: its quiet bit is set, since rounding could carry
// a small payload over into Inf.
constexpr bf16 ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return {static_cast<uint16_t>((bits >> 16) | 0x0040u)};
  }
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace penstock
