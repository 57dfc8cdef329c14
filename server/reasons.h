// Reasons of ErrorInfo that only the daemon gives; the others are in engine/base/status.h, and all
// are in docs/errors.md.
#pragma once

#include <string_view>

namespace penstock::reason {

inline constexpr std::string_view kTimeLimit = "TIME_LIMIT";

}  // namespace penstock::reason
