// One fp32 value as two 16-bit planes.
//
//   bits(w) == (hi << 16) + lo   (mod 2^32), hi unsigned, lo signed
//
// hi is the bf16 nearest to w (a tie goes away from zero, the only side on which the
// correction fits 16 signed bits), so the GPU is fed the hi plane as it lies; the optimizer
// rebuilds w bit for bit. Any pattern survives, NaN payloads included. Two patterns where hi
// alone is not what bf16 rounding gives: a NaN whose payload lies within 2^15 of Inf, and of
// the wrap at 0xFFFFxxxx; weights that are not finite never reach a forward pass.
#pragma once

#include <bit>
#include <cstdint>

namespace penstock {

struct SplitValue {
  uint16_t hi;
  int16_t lo;
};

constexpr SplitValue Split(float w) {
  const uint32_t bits = std::bit_cast<uint32_t>(w);
  const uint16_t hi = static_cast<uint16_t>((bits + 0x8000u) >> 16);
  return {hi, static_cast<int16_t>(static_cast<uint16_t>(bits - (uint32_t{hi} << 16)))};
}

constexpr float Join(uint16_t hi, int16_t lo) {
  return std::bit_cast<float>((uint32_t{hi} << 16) + static_cast<uint32_t>(int32_t{lo}));
}

// Whole arrays; vectorised by the compiler. Arrays don't overlap.
void SplitPlanes(const float* w, int64_t count, uint16_t* hi, int16_t* lo);
void JoinPlanes(const uint16_t* hi, const int16_t* lo, int64_t count, float* w);

}  // namespace penstock
