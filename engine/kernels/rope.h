// Rotary position embedding, in place, in Hugging Face's pairing: element i of a head turns
// with element i + head_dim/2.
//   forward    x'[i]        = x[i] * cos - x[i + half] * sin
//              x'[i + half] = x[i + half] * cos + x[i] * sin
//   backward   the same with -sin: a rotation's gradient is its inverse.
// cos and sin are those of positions[r] * inverse_frequency[i], from the table.
// Shapes    element (r,h,i) of x lies at r * stride + h * head_dim + i; positions [rows];
//           table [max_positions, head_dim]: cosines in the first half of a row, sines in the
//           second.
// Needs     head_dim even; 0 <= positions[r] < max_positions, else InvalidArgument (CPU).
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/kernels/context.h"

namespace penstock {

enum class RopeDirection : uint8_t { kForward, kBackward };

template <typename T>
struct RopeArgs {
  T* x;
  int64_t stride;  // elements between rows, >= heads * head_dim
  int64_t rows, heads, head_dim;
  const int32_t* positions;
  const float* table;
  int64_t max_positions;
  RopeDirection direction;
};

absl::Status Rope(const cpu::Context& context, const RopeArgs<float>& args);
absl::Status Rope(const cuda::Context& context, const RopeArgs<bf16>& args);

// Fills table [positions, 2 * inverse_frequencies.size()]. Angles are computed in f64: in f32
// an angle at position 100,000 is off by up to 4e-3.
void FillRopeTable(std::span<const double> inverse_frequencies, int64_t positions, float* table);

}  // namespace penstock
