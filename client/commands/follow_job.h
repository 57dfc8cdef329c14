// Following one job to its end, with its progress on stderr: submit, export and run share this.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "client/commands/context.h"
#include "client/progress.h"

namespace penstock::client {

struct FollowJobOptions {
  ProgressView::Style style = ProgressView::Style::kSilent;
  // Asked a few times a second, with the place for what there is to say; false leaves the job.
  std::function<bool(ProgressView&)> go_on;
};

struct FollowEnd {
  // Of the job, or of the error that ended the following; kInterrupted if go_on said to leave.
  ExitCode code = ExitCode::kInternal;
  std::optional<v1::Job> job = {};  // as it ended
  bool left() const { return code == ExitCode::kInterrupted; }
};

// Prints how the job ended, or the error.
FollowEnd FollowJob(const Context& context, RpcClient& client, const std::string& name,
                    const FollowJobOptions& options);

// For submit and export: Ctrl-C leaves the job alone and says how to get back to it.
ExitCode FollowDetachably(const Context& context, RpcClient& client, const std::string& name,
                          ProgressView::Style style);

}  // namespace penstock::client
