#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/device_text.h"
#include "engine/base/units.h"
#include "proto/message_print.h"

namespace penstock::client {
namespace {

// "ann: 2 running, 5 queued, 3h10m of GPUs and 12s of the CPU of late"
std::string ShareText(const v1::UserShare& user) {
  return absl::StrCat(user.user().empty() ? "the daemon's own" : user.user(), ": ",
                      user.running_jobs(), " running, ", user.queued_jobs(), " queued, ",
                      FormatDuration(user.recent_gpu_seconds()), " of GPUs and ",
                      FormatDuration(user.recent_cpu_seconds()), " of the CPU of late");
}

std::string InfoText(const RpcClient& client, const v1::GetServerInfoResponse& info,
                     const v1::ListDevicesResponse& devices) {
  Facts facts;
  facts.Add("Endpoint", client.endpoint().target);
  facts.Add("Version", absl::StrCat(info.version(), ", API revision ", info.api_revision()));
  facts.Add("Status", ShortEnumName(*v1::ServerStatus_descriptor(), info.status()));
  facts.Add("Jobs", absl::StrCat(info.running_jobs(), " running, ", info.queued_jobs(), " queued"));
  for (const v1::UserShare& user : info.users()) facts.Add("User", ShareText(user));
  facts.Add("Host memory", absl::StrCat(FormatBytes(info.host_memory_reserved_bytes()),
                                        " reserved of ", FormatBytes(info.host_memory_bytes()),
                                        " (", info.host_memory_limit_source(), ")"));
  facts.Add("Allowed roots", absl::StrJoin(info.allowed_roots(), ", "));
  facts.Add("State directory", info.state_directory());
  facts.Add("Signing key", info.signing_public_key());
  if (info.checkpoint_seconds() > 0) {
    facts.Add("Checkpoints", absl::StrFormat("written in up to %.1f s", info.checkpoint_seconds()));
  }
  facts.Add("Capabilities", absl::StrJoin(info.capabilities(), ", "));
  return absl::StrCat(facts.ToText(), "\n", DevicesTable(devices.devices()));
}

ExitCode Info(const Context& context, RpcClient& client, const bool& only_if_ready) {
  const absl::StatusOr<v1::GetServerInfoResponse> info = client.Call(
      client.admin(), &v1::AdminService::Stub::GetServerInfo, v1::GetServerInfoRequest());
  if (!info.ok()) return context.Fail(info.status());
  const absl::StatusOr<v1::ListDevicesResponse> devices =
      client.Call(client.admin(), &v1::AdminService::Stub::ListDevices, v1::ListDevicesRequest());
  if (!devices.ok()) return context.Fail(devices.status());
  if (context.format == Format::kTable) {
    PrintData(InfoText(client, *info, *devices));
  } else {
    // Two replies, so two documents: one JSON object a line, or YAML documents.
    PrintData(FormatStreamed(context.format, *info));
    PrintData(FormatStreamed(context.format, *devices));
  }
  const bool ready = info->status() == v1::SERVER_STATUS_SERVING;
  return ready || !only_if_ready ? ExitCode::kOk : ExitCode::kTryAgain;
}

}  // namespace

void AddInfo(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("info", "Show the daemon, its limits and its devices");
  auto only_if_ready = std::make_shared<bool>(false);
  command->add_flag("--ready", *only_if_ready,
                    "Exit with 75 unless the daemon starts jobs; for health checks");
  OnConnected(*command, context, [&context, only_if_ready](RpcClient& client) {
    return Info(context, client, *only_if_ready);
  });
}

}  // namespace penstock::client
