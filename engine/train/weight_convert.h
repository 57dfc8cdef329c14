// Between fp32 and the types that weights are stored in. Widening is exact; narrowing rounds to
// nearest, ties to even, so a value that came from the narrow type goes back to the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/train/weight_table.h"

namespace penstock {

float HalfToFloat(uint16_t half);
uint16_t FloatToHalf(float value);
uint16_t FloatToBFloat16(float value);

// raw: count little-endian values of `type`, of any alignment.
void WidenWeights(WeightType type, const std::byte* raw, std::span<float> out);
void NarrowWeights(WeightType type, std::span<const float> values, std::byte* raw);

// Index of the first value that is NaN or infinite, as it is (for kFloat32) or would be after
// narrowing to `type`; -1 if there is none.
int64_t FindNonFinite(std::span<const float> values, WeightType type);

}  // namespace penstock
