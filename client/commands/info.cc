#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/device_text.h"
#include "engine/base/units.h"
#include "proto/message_print.h"

namespace penstock::client {
namespace {

std::string InfoText(const RpcClient& client, const v1::GetServerInfoResponse& info,
                     const v1::ListDevicesResponse& devices) {
  Facts facts;
  facts.Add("Endpoint", client.endpoint().target);
  facts.Add("Version", absl::StrCat(info.version(), ", API revision ", info.api_revision()));
  facts.Add("Status", ShortEnumName(*v1::ServerStatus_descriptor(), info.status()));
  facts.Add("Jobs", absl::StrCat(info.running_jobs(), " running, ", info.queued_jobs(), " queued"));
  facts.Add("Host memory", absl::StrCat(FormatBytes(info.host_memory_reserved_bytes()),
                                        " reserved of ", FormatBytes(info.host_memory_bytes()),
                                        " (", info.host_memory_limit_source(), ")"));
  facts.Add("Allowed roots", absl::StrJoin(info.allowed_roots(), ", "));
  facts.Add("State directory", info.state_directory());
  facts.Add("Signing key", info.signing_public_key());
  facts.Add("Capabilities", absl::StrJoin(info.capabilities(), ", "));
  return absl::StrCat(facts.ToText(), "\n", DevicesTable(devices.devices()));
}

ExitCode Info(const Context& context, RpcClient& client) {
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
  return ExitCode::kOk;
}

}  // namespace

void AddInfo(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("info", "Show the daemon, its limits and its devices");
  OnConnected(*command, context, [&context](RpcClient& client) { return Info(context, client); });
}

}  // namespace penstock::client
