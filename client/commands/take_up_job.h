// The one job of a `penstock run`: submitted the first time, taken up again after that.
#pragma once

#include "absl/status/statusor.h"
#include "client/commands/context.h"

namespace penstock::client {

// The job of this spec in the daemon's state directory. One that has not ended goes on by itself,
// or is resumed if it is paused; one that failed or was cancelled is resumed from its newest
// checkpoint, or made anew if it has none; one that has succeeded is given back as it is.
// FailedPrecondition / JOB_STATE_CONFLICT if the directory has an unfinished job of another spec.
// An error has been printed when this returns.
absl::StatusOr<v1::Job> TakeUpJob(const Context& context, RpcClient& client,
                                  const v1::JobSpec& spec);

}  // namespace penstock::client
