// How a block's moments lie in their device buffer. Its correction plane, int16 [size], has one of
// its own, and the hi plane is the block's weight buffer. `size`: elements of the block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/units.h"

namespace penstock {

constexpr int64_t DeviceCorrectionBytes(int64_t size) { return size * 2; }

struct DeviceMoments {
  float *m, *v;  // [size]
};

constexpr int64_t DeviceMomentsBytes(int64_t size) {
  constexpr int64_t kAlignment = 256;  // of each
  return 2 * RoundUp(size * 4, kAlignment);
}

inline DeviceMoments DeviceMomentsAt(std::byte* buffer, int64_t size) {
  return {reinterpret_cast<float*>(buffer),
          reinterpret_cast<float*>(buffer + DeviceMomentsBytes(size) / 2)};
}

}  // namespace penstock
