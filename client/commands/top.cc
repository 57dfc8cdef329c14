#include <unistd.h>

#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/interrupts.h"
#include "client/screen.h"
#include "client/top_text.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

// A page has room for no more.
constexpr int kMostJobs = 200;
// A daemon that is away must not keep the page from answering to its keys.
constexpr absl::Duration kCallLimit = absl::Seconds(5);

struct TopOptions {
  double interval_seconds = 1;
};

absl::StatusOr<TopReading> Read(RpcClient& client) {
  TopReading reading;
  PENSTOCK_ASSIGN_OR_RETURN(reading.info,
                            client.Call(client.admin(), &v1::AdminService::Stub::GetServerInfo,
                                        v1::GetServerInfoRequest()));
  PENSTOCK_ASSIGN_OR_RETURN(
      reading.devices,
      client.Call(client.admin(), &v1::AdminService::Stub::ListDevices, v1::ListDevicesRequest()));
  v1::ListJobsRequest request;
  request.set_page_size(kMostJobs);
  for (const v1::JobState state :
       {v1::JOB_STATE_QUEUED, v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING,
        v1::JOB_STATE_CANCELLING, v1::JOB_STATE_PAUSING, v1::JOB_STATE_PAUSED,
        v1::JOB_STATE_YIELDING}) {
    request.add_states(state);
  }
  PENSTOCK_ASSIGN_OR_RETURN(reading.jobs,
                            client.Call(client.jobs(), &v1::JobService::Stub::ListJobs, request));
  return reading;
}

ExitCode PrintOnce(const Context& context, RpcClient& client) {
  const absl::StatusOr<TopReading> reading = Read(client);
  if (!reading.ok()) return context.Fail(reading.status());
  if (context.format == Format::kTable) {
    PrintData(TopPage(client.endpoint().target, *reading));
  } else {
    // Three replies, so three documents.
    PrintData(FormatStreamed(context.format, reading->info));
    PrintData(FormatStreamed(context.format, reading->devices));
    PrintData(FormatStreamed(context.format, reading->jobs));
  }
  return ExitCode::kOk;
}

// Until q or Ctrl-C. While the daemon is away, the last page stays, with a word on top.
ExitCode ShowLive(const Context& context, const TopOptions& options, RpcClient& client) {
  absl::StatusOr<TopReading> reading = Read(client);
  if (!reading.ok()) return context.Fail(reading.status());
  const InterruptGuard interrupts;
  Screen screen;
  client.set_timeout(kCallLimit);
  std::string page, trouble;
  while (true) {
    trouble.clear();
    if (reading.ok()) {
      page = TopPage(client.endpoint().target, *reading);
    } else {
      trouble =
          absl::StrCat("trying again: ", Printable(std::string(reading.status().message())), "\n");
    }
    screen.Draw(trouble + page);
    const char key = screen.WaitForKey(absl::Seconds(options.interval_seconds));
    if (key == 'q' || key == 'Q' || interrupts.first() != Interrupt::kNone) return ExitCode::kOk;
    reading = Read(client);
  }
}

}  // namespace

void AddTop(CLI::App& app, Context& context) {
  auto options = std::make_shared<TopOptions>();
  CLI::App* command = app.add_subcommand(
      "top", "Show devices and jobs, live on a terminal until q is pressed, else once");
  command->add_option("--interval", options->interval_seconds, "Seconds between two readings")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  OnConnected(*command, context, [&context, options](RpcClient& client) {
    const bool live = isatty(STDOUT_FILENO) != 0 && context.format == Format::kTable;
    return live ? ShowLive(context, *options, client) : PrintOnce(context, client);
  });
}

}  // namespace penstock::client
