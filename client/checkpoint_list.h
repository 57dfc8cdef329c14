#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/rpc_client.h"

namespace penstock::client {

// All pages, oldest first. `job` is jobs/{id}.
absl::StatusOr<v1::ListCheckpointsResponse> ListAllCheckpoints(RpcClient& client,
                                                               const std::string& job);

// Calls `use` with a checkpoint's name as it is, or, of a job, with its newest checkpoint. A job
// that saves often may have removed that one before `use` holds it: then the newest is looked up
// again, a few times. NotFound / CHECKPOINT_NOT_FOUND.
absl::Status WithCheckpoint(RpcClient& client, const std::string& text,
                            absl::FunctionRef<absl::Status(const std::string& checkpoint)> use);

}  // namespace penstock::client
