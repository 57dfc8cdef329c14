#pragma once

#include <cstdint>

namespace penstock {

// The label of a position from which nothing is learned.
inline constexpr int32_t kIgnoreLabel = -1;

}  // namespace penstock
