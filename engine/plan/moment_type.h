// How AdamW's two moments are kept between steps. What their codes mean:
// kernels/moment_codes.h.
#pragma once

#include <array>
#include <cstdint>

namespace penstock {

enum class MomentType : uint8_t {
  kFloat32,
  kBfloat16,    // rounded stochastically
  kInt8Blocks,  // 8-bit codes, in blocks of 256 with a scale in fp32, rounded stochastically
};
inline constexpr std::array kMomentTypes = {MomentType::kFloat32, MomentType::kBfloat16,
                                            MomentType::kInt8Blocks};

constexpr const char* MomentTypeName(MomentType type) {
  switch (type) {
    case MomentType::kFloat32:
      return "float32";
    case MomentType::kBfloat16:
      return "bfloat16";
    case MomentType::kInt8Blocks:
      return "int8_blocks";
  }
  return "?";
}

// Elements with one scale; the first block of a parameter begins with the parameter.
inline constexpr int64_t kMomentBlock = 256;

constexpr int64_t MomentBlocks(int64_t elements) {
  return (elements + kMomentBlock - 1) / kMomentBlock;
}

// Of one moment of an element, without scales.
constexpr int64_t MomentElementBytes(MomentType type) {
  switch (type) {
    case MomentType::kFloat32:
      return 4;
    case MomentType::kBfloat16:
      return 2;
    case MomentType::kInt8Blocks:
      return 1;
  }
  return 0;
}

// Bytes of both moments of a parameter with so many elements.
constexpr int64_t MomentBytes(MomentType type, int64_t elements) {
  const int64_t scales = type == MomentType::kInt8Blocks ? 4 * MomentBlocks(elements) : 0;
  return 2 * (MomentElementBytes(type) * elements + scales);
}

}  // namespace penstock
