#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/device_text.h"

namespace penstock::client {
namespace {

ExitCode ReleaseDevice(const Context& context, const std::string& id, RpcClient& client) {
  v1::ReleaseDeviceRequest request;
  request.set_id(id);
  const absl::StatusOr<v1::ReleaseDeviceResponse> response =
      client.Call(client.admin(), &v1::AdminService::Stub::ReleaseDevice, request);
  if (!response.ok()) return context.Fail(response.status());
  context.Print(*response,
                [&] { return absl::StrCat(Printable(DeviceText(response->device())), "\n"); });
  return ExitCode::kOk;
}

}  // namespace

void AddReleaseDevice(CLI::App& app, Context& context) {
  auto id = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("release-device", "End a device's quarantine: jobs start on it again");
  command->add_option("device", *id, "The GPU's UUID, as `penstock info` shows it")->required();
  OnConnected(*command, context,
              [&context, id](RpcClient& client) { return ReleaseDevice(context, *id, client); });
}

}  // namespace penstock::client
