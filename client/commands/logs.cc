#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/follow.h"
#include "client/interrupts.h"
#include "client/job_text.h"

namespace penstock::client {
namespace {

struct LogsOptions {
  std::string job;
  bool follow = false;
};

void PrintLines(const Context& context, bool to_terminal, const v1::WatchJobsResponse& event) {
  if (!event.has_log_lines()) return;
  if (context.format != Format::kTable) {
    PrintData(FormatStreamed(context.format, event));
    return;
  }
  std::string text;
  for (const std::string& line : event.log_lines().lines()) {
    absl::StrAppend(&text, to_terminal ? Printable(line) : line, "\n");
  }
  PrintData(text);
}

ExitCode Logs(const Context& context, const LogsOptions& options, RpcClient& client) {
  const InterruptGuard interrupts;
  const bool to_terminal = isatty(STDOUT_FILENO) != 0;
  v1::WatchJobsRequest request;
  request.set_name(JobName(options.job));
  request.set_follow(options.follow);
  request.add_kinds(v1::WATCH_KIND_LOG);
  const absl::StatusOr<std::optional<v1::Job>> end = Follow(
      client, std::move(request),
      {.on_event =
           [&](const v1::WatchJobsResponse& event) { PrintLines(context, to_terminal, event); },
       .on_tick = [&] { return interrupts.first() == Interrupt::kNone; },
       .on_lost = [](const absl::Status&) {}});
  if (!end.ok()) return context.Fail(end.status());
  if (!*end) return ExitCode::kInterrupted;
  // Without --follow the lines are what was asked for, whatever became of the job.
  return options.follow ? ExitCodeOf(**end) : ExitCode::kOk;
}

}  // namespace

void AddLogs(CLI::App& app, Context& context) {
  auto options = std::make_shared<LogsOptions>();
  CLI::App* command = app.add_subcommand("logs", "Print the log of a job, all attempts");
  command->add_option("job", options->job, "Id or name of the job")->required();
  command->add_flag("-f,--follow", options->follow, "Go on until the job has ended");
  OnConnected(*command, context,
              [&context, options](RpcClient& client) { return Logs(context, *options, client); });
}

}  // namespace penstock::client
