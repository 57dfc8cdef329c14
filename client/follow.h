// Follows a job to its end over as many connections as it takes.
//
// The result of a job is what End says. A stream that closes without End is a broken connection:
// the follower calls again with the last cursor, so nothing is lost and nothing comes twice.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/rpc_client.h"
#include "penstock/v1/job.pb.h"

namespace penstock::client {

struct FollowHandlers {
  // Every message but End.
  std::function<void(const v1::WatchJobsResponse&)> on_event;
  // A few times a second. False ends the following.
  std::function<bool()> on_tick;
  // The connection was lost; it is being made again.
  std::function<void(const absl::Status&)> on_lost;
};

// How long the daemon may be away before a follower gives up.
inline constexpr absl::Duration kReconnectLimit = absl::Minutes(2);

// The job as End gave it; nothing if on_tick ended it. An error if the daemon refuses the call, or
// is away for longer than `reconnect_limit`.
absl::StatusOr<std::optional<v1::Job>> Follow(RpcClient& client, v1::WatchJobsRequest request,
                                              const FollowHandlers& handlers,
                                              absl::Duration reconnect_limit = kReconnectLimit);

}  // namespace penstock::client
