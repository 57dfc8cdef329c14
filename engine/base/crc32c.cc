#include "engine/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace penstock {

uint32_t Crc32c(std::string_view bytes) {
  constexpr size_t kMostAtOnce = size_t{1} << 30;  // the library counts in int
  uint32_t crc = ~uint32_t{0};
  while (!bytes.empty()) {
    const size_t taken = std::min(bytes.size(), kMostAtOnce);
    // It reads only, whatever its parameter says.
    auto* const data = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
    crc = crc32_iscsi(data, static_cast<int>(taken), crc);
    bytes.remove_prefix(taken);
  }
  return ~crc;
}

}  // namespace penstock
