#pragma once

#include <cstdint>

namespace penstock {

// The bytes [begin, end) of a text.
struct TextSpan {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const TextSpan&) const = default;
};

}  // namespace penstock
