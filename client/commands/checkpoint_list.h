#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/rpc_client.h"

namespace penstock::client {

// All pages, oldest first. `job` is jobs/{id}.
absl::StatusOr<v1::ListCheckpointsResponse> ListAllCheckpoints(RpcClient& client,
                                                               const std::string& job);

// A checkpoint's name as it is; of a job, its newest checkpoint. NotFound / CHECKPOINT_NOT_FOUND.
absl::StatusOr<std::string> FindCheckpoint(RpcClient& client, const std::string& text);

}  // namespace penstock::client
