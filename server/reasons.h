// Reasons of ErrorInfo that only the daemon gives; the others are in engine/base/status.h, and all
// are in docs/errors.md.
#pragma once

#include <string_view>

namespace penstock::reason {

inline constexpr std::string_view kTimeLimit = "TIME_LIMIT";
inline constexpr std::string_view kTokenMissing = "TOKEN_MISSING";
inline constexpr std::string_view kTokenInvalid = "TOKEN_INVALID";
inline constexpr std::string_view kTokenExpired = "TOKEN_EXPIRED";
inline constexpr std::string_view kTokenRevoked = "TOKEN_REVOKED";
inline constexpr std::string_view kTokenNotFound = "TOKEN_NOT_FOUND";
inline constexpr std::string_view kCertificateUnknown = "CERTIFICATE_UNKNOWN";
inline constexpr std::string_view kRoleInsufficient = "ROLE_INSUFFICIENT";
inline constexpr std::string_view kNotOwner = "NOT_OWNER";
inline constexpr std::string_view kRateLimited = "RATE_LIMITED";
inline constexpr std::string_view kQuotaExceeded = "QUOTA_EXCEEDED";
inline constexpr std::string_view kAuditBroken = "AUDIT_BROKEN";
inline constexpr std::string_view kUploadNotFound = "UPLOAD_NOT_FOUND";
inline constexpr std::string_view kUploadExists = "UPLOAD_EXISTS";
inline constexpr std::string_view kUploadOffset = "UPLOAD_OFFSET";
inline constexpr std::string_view kUploadCorrupt = "UPLOAD_CORRUPT";
inline constexpr std::string_view kUploadIncomplete = "UPLOAD_INCOMPLETE";
inline constexpr std::string_view kUploadInUse = "UPLOAD_IN_USE";
inline constexpr std::string_view kUploadLimit = "UPLOAD_LIMIT";
inline constexpr std::string_view kFileNotFound = "FILE_NOT_FOUND";

}  // namespace penstock::reason
