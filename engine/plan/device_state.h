// How a block's moments lie in their device buffer. Its correction plane, int16 [size], has one of
// its own, and the hi plane is the block's weight buffer.
#pragma once

#include <cstdint>

#include "engine/base/units.h"

namespace penstock {

constexpr int64_t DeviceCorrectionBytes(int64_t size) { return size * 2; }

struct DeviceMomentsLayout {
  int64_t m = 0;  // f32 [size]
  int64_t v = 0;  // f32 [size]
  int64_t bytes = 0;
};

// `size`: elements of the block.
constexpr DeviceMomentsLayout MakeDeviceMomentsLayout(int64_t size) {
  constexpr int64_t kAlignment = 256;
  DeviceMomentsLayout layout;
  layout.v = RoundUp(size * 4, kAlignment);
  layout.bytes = layout.v + RoundUp(size * 4, kAlignment);
  return layout;
}

}  // namespace penstock
