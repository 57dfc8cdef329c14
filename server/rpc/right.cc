#include "server/rpc/right.h"

#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "server/reasons.h"

namespace penstock::server {

absl::Status CheckRight(const Call* call) {
  if (call == nullptr || !call->RightHasEnded(absl::Now())) return absl::OkStatus();
  return Error(absl::StatusCode::kUnauthenticated, reason::kTokenRevoked,
               "the token that the stream was opened with has been revoked or has expired; ask an "
               "admin for another (penstock admin token create)");
}

}  // namespace penstock::server
