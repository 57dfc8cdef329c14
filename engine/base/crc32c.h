// CRC-32C (Castagnoli), by ISA-L: the checksum of a piece of a file on its way between client and
// daemon. Whole files have SHA-256.
#pragma once

#include <cstdint>
#include <string_view>

namespace penstock {

uint32_t Crc32c(std::string_view bytes);

}  // namespace penstock
