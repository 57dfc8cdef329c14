// Whether a stream that has begun may go on.
#pragma once

#include "absl/status/status.h"
#include "server/access/call.h"

namespace penstock::server {

// Unauthenticated / TOKEN_REVOKED once the token of the call has been revoked or has expired. A
// null call is the daemon's own.
absl::Status CheckRight(const Call* call);

}  // namespace penstock::server
