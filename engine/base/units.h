#pragma once

#include <cstdint>
#include <string>

namespace penstock {

// "118.4 GiB", "512 MiB", "37 B": what messages print; exact bytes go into the metadata.
std::string FormatBytes(int64_t bytes);

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t multiple) { return CeilDiv(a, multiple) * multiple; }

}  // namespace penstock
