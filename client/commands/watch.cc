#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/follow_job.h"
#include "client/device_text.h"
#include "client/follow.h"
#include "client/interrupts.h"
#include "client/job_text.h"

namespace penstock::client {
namespace {

struct WatchOptions {
  std::string job;
  int64_t min_metric_interval_ms = 0;
  bool lines = false;
};

// One line an event, or nothing for those that only keep the stream going.
std::string EventText(const v1::WatchJobsResponse& event) {
  switch (event.event_case()) {
    case v1::WatchJobsResponse::kStateChanged:
      return StateText(event.state_changed().job());
    case v1::WatchJobsResponse::kMetrics:
      return MetricText(event.metrics());
    case v1::WatchJobsResponse::kCheckpointSaved:
      return absl::StrCat("checkpoint ", event.checkpoint_saved().checkpoint().name(), " saved");
    case v1::WatchJobsResponse::kCheckpointFailed:
      return absl::StrCat("checkpoint of step ", event.checkpoint_failed().step(),
                          " not saved: ", event.checkpoint_failed().error().message());
    case v1::WatchJobsResponse::kPlanMissed:
      return PlanMissedText(event.plan_missed());
    case v1::WatchJobsResponse::kDeviceChanged:
      return DeviceText(event.device_changed().device());
    default:
      return "";
  }
}

void PrintEvent(const Context& context, const v1::WatchJobsResponse& event) {
  const std::string text = EventText(event);
  if (text.empty()) return;
  PrintData(context.format == Format::kTable ? absl::StrCat(Printable(text), "\n")
                                             : FormatStreamed(context.format, event));
}

// One job, for somebody who looks at it: a bar and what is left, rather than a line a step.
bool IsForEyes(const Context& context, const WatchOptions& options) {
  return !options.lines && !options.job.empty() && context.format == Format::kTable &&
         isatty(STDOUT_FILENO) != 0 &&
         ProgressView::StyleFor(context.quiet) == ProgressView::Style::kLive;
}

ExitCode Watch(const Context& context, const WatchOptions& options, RpcClient& client) {
  if (IsForEyes(context, options)) {
    return FollowDetachably(context, client, JobName(options.job), ProgressView::Style::kLive);
  }
  const InterruptGuard interrupts;
  v1::WatchJobsRequest request;
  request.set_name(options.job.empty() ? "jobs/-" : JobName(options.job));
  request.set_follow(true);
  request.set_min_metric_interval_ms(options.min_metric_interval_ms);
  request.add_kinds(v1::WATCH_KIND_STATE);
  request.add_kinds(v1::WATCH_KIND_CHECKPOINT);
  request.add_kinds(v1::WATCH_KIND_DEVICE);
  if (!options.job.empty()) request.add_kinds(v1::WATCH_KIND_METRIC);
  const absl::StatusOr<std::optional<v1::Job>> end =
      Follow(client, std::move(request),
             {.on_event = [&](const v1::WatchJobsResponse& event) { PrintEvent(context, event); },
              .on_tick = [&] { return interrupts.first() == Interrupt::kNone; },
              .on_lost =
                  [](const absl::Status& status) {
                    PrintTalk(absl::StrCat("lost the daemon, connecting again: ",
                                           Printable(std::string(status.message())), "\n"));
                  }});
  if (!end.ok()) return context.Fail(end.status());
  if (!*end) return ExitCode::kInterrupted;
  if (!context.quiet || (*end)->state() == v1::JOB_STATE_FAILED) PrintTalk(EndText(**end));
  return ExitCodeOf(**end);
}

}  // namespace

void AddWatch(CLI::App& app, Context& context) {
  auto options = std::make_shared<WatchOptions>();
  CLI::App* command =
      app.add_subcommand("watch", "Show what happens to a job until it has ended, or to all jobs");
  command->add_option("job", options->job, "Id or name of the job; absent: all jobs");
  command
      ->add_option("--metric-interval-ms", options->min_metric_interval_ms,
                   "At most one metric point in this time; 0: all")
      ->check(CLI::Range(int64_t{0}, int64_t{86'400'000}));
  command->add_flag("--lines", options->lines,
                    "A line for each event on a terminal too, instead of a progress bar");
  OnConnected(*command, context,
              [&context, options](RpcClient& client) { return Watch(context, *options, client); });
}

}  // namespace penstock::client
