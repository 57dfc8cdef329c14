// Reasons of ErrorInfo that only the daemon gives; the others are in engine/base/status.h, and all
// are in docs/errors.md.
#pragma once

#include <string_view>

namespace penstock::reason {

inline constexpr std::string_view kTimeLimit = "TIME_LIMIT";
inline constexpr std::string_view kUploadNotFound = "UPLOAD_NOT_FOUND";
inline constexpr std::string_view kUploadExists = "UPLOAD_EXISTS";
inline constexpr std::string_view kUploadOffset = "UPLOAD_OFFSET";
inline constexpr std::string_view kUploadCorrupt = "UPLOAD_CORRUPT";
inline constexpr std::string_view kUploadIncomplete = "UPLOAD_INCOMPLETE";
inline constexpr std::string_view kUploadInUse = "UPLOAD_IN_USE";
inline constexpr std::string_view kUploadLimit = "UPLOAD_LIMIT";
inline constexpr std::string_view kFileNotFound = "FILE_NOT_FOUND";

}  // namespace penstock::reason
