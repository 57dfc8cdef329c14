#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/rpc_client.h"

namespace penstock::client {

// All pages, oldest first. `job` is jobs/{id}.
absl::StatusOr<v1::ListCheckpointsResponse> ListAllCheckpoints(RpcClient& client,
                                                               const std::string& job);

}  // namespace penstock::client
