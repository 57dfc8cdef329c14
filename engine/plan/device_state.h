// How the optimizer state of a block lies in its device buffer. The weights' hi plane is not
// part of it: it is the block's weight buffer.
#pragma once

#include <cstdint>

#include "engine/base/units.h"

namespace penstock {

struct DeviceStateLayout {
  int64_t lo = 0;  // int16 [size]
  int64_t m = 0;   // f32 [size]
  int64_t v = 0;   // f32 [size]
  int64_t bytes = 0;
};

// `size`: elements of the block.
constexpr DeviceStateLayout MakeDeviceStateLayout(int64_t size) {
  constexpr int64_t kAlignment = 256;
  DeviceStateLayout layout;
  layout.m = RoundUp(size * 2, kAlignment);
  layout.v = layout.m + RoundUp(size * 4, kAlignment);
  layout.bytes = layout.v + RoundUp(size * 4, kAlignment);
  return layout;
}

}  // namespace penstock
