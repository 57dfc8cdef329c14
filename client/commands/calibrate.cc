#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/commands.h"
#include "client/output.h"

namespace penstock::client {
namespace {

// Measuring takes most of a minute; --timeout says otherwise.
constexpr absl::Duration kMeasuring = absl::Minutes(3);

std::string ProfilePage(const v1::MachineProfile& profile) {
  Facts facts;
  facts.Add("Device", profile.device());
  facts.Add("Machine", profile.identity());
  for (const v1::MachineProfile::Rate& rate : profile.rates()) {
    facts.Add(rate.name(), absl::StrFormat("%.3g %s", rate.value(), rate.unit()));
  }
  facts.Add("Measured in", FormatDuration(profile.measuring_seconds()));
  return facts.ToText();
}

struct CalibrateOptions {
  std::string device;
  bool json = false;
};

ExitCode Calibrate(const Context& context, const CalibrateOptions& options, RpcClient& client) {
  v1::CalibrateDeviceRequest request;
  request.set_id(options.device);
  const absl::StatusOr<v1::CalibrateDeviceResponse> response =
      client.Call(client.admin(), &v1::AdminService::Stub::CalibrateDevice, request);
  if (!response.ok()) return context.Fail(response.status());
  if (options.json) {
    PrintData(response->profile().json());
    return ExitCode::kOk;
  }
  return context.Print(response->profile(), [&] { return ProfilePage(response->profile()); });
}

}  // namespace

void AddCalibrate(CLI::App& app, Context& context) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command =
      app.add_subcommand("calibrate", "Measure a device; plans are made of its rates from then on");
  command->add_option("device", options->device,
                      "cpu or a GPU's UUID; the first healthy GPU, or the CPU, unless given");
  command->add_flag("--profile", options->json,
                    "Print the profile as a file that plan --machine takes");
  OnConnected(*command, context, [&context, &app, options](RpcClient& client) {
    if (app.count("--timeout") == 0) client.set_timeout(kMeasuring);
    return Calibrate(context, *options, client);
  });
}

}  // namespace penstock::client
