// Following one job to its end, with its progress on stderr: submit, export and run share this.
#pragma once

#include <functional>
#include <string>

#include "client/commands/context.h"
#include "client/interrupts.h"
#include "client/progress.h"

namespace penstock::client {

struct FollowJobOptions {
  ProgressView::Style style = ProgressView::Style::kSilent;
  // Called once, at the first Ctrl-C or SIGTERM. True goes on following to the job's end.
  std::function<bool(Interrupt)> on_interrupt;
};

// Prints how the job ended and gives its exit code. kInterrupted if on_interrupt said to leave.
ExitCode FollowJob(const Context& context, RpcClient& client, const std::string& name,
                   const InterruptGuard& interrupts, const FollowJobOptions& options);

// For submit and export: Ctrl-C leaves the job alone and says how to get back to it.
ExitCode FollowDetachably(const Context& context, RpcClient& client, const std::string& name,
                          ProgressView::Style style);

}  // namespace penstock::client
