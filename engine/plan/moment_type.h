// How AdamW's two moments are kept between steps: a choice that plans can be made for. Executors
// have kFloat32.
#pragma once

#include <cstdint>

namespace penstock {

enum class MomentType : uint8_t {
  kFloat32,
  kBfloat16,    // rounded stochastically
  kInt8Blocks,  // in blocks of 256, each with a scale in fp32
};

inline constexpr int64_t kMomentBlock = 256;

// Bytes of both moments of so many parameters.
constexpr int64_t MomentBytes(MomentType type, int64_t parameters) {
  switch (type) {
    case MomentType::kFloat32:
      return 8 * parameters;
    case MomentType::kBfloat16:
      return 4 * parameters;
    case MomentType::kInt8Blocks:
      return 2 * (parameters + 4 * ((parameters + kMomentBlock - 1) / kMomentBlock));
  }
  return 0;
}

}  // namespace penstock
