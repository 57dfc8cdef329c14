// Creating a job, for submit and run.
#pragma once

#include "absl/status/statusor.h"
#include "client/commands/context.h"

namespace penstock::client {

// Calls CreateJob with a fresh request_id, so that a retry cannot make a second job, and prints
// warnings. An error is for the caller to print, with the request_id.
absl::StatusOr<v1::Job> CreateJob(RpcClient& client, v1::CreateJobRequest& request);

// For a job file that cannot be loaded: prints the error.
ExitCode FailToLoad(const Context& context, const absl::Status& status);

}  // namespace penstock::client
