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

}  // namespace penstock::reason
