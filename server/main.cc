// penstockd: the control plane. It plans, queues and watches jobs; workers run them.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/engine.h"
#include "server/devices/nvml_driver.h"
#include "server/run_daemon.h"
#include "server/spec/convert.h"
#include "server/spec/device_choice.h"
#include "server/spec/job_spec.h"
#include "server/spec/spec_fields.h"

namespace penstock::server {
namespace {

// Defaults and ranges, then files and memory.
absl::StatusOr<PlannedJob> PlanJob(const v1::JobSpec& spec, const std::string& machine,
                                   const std::vector<std::string>& allowed_roots,
                                   const DeviceRegistry& devices) {
  DeviceOffer offer{.devices = devices.List(), .missing_gpus = devices.missing_gpus()};
  if (!machine.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const MachineInfo info, FindMachine(machine));
    offer = OfferOf(info);
  }
  PENSTOCK_ASSIGN_OR_RETURN(ResolvedSpec resolved, ResolveJobSpec(spec, allowed_roots, offer));
  resolved.config.device.planned_machine = machine;
  PENSTOCK_ASSIGN_OR_RETURN(const MemoryPlanSummary plan, PlanTraining(resolved.config));
  return PlannedJob{.spec = std::move(resolved.spec),
                    .plan = ToProto(plan),
                    .warnings = std::move(resolved.warnings)};
}

absl::StatusOr<v1::InspectDataResponse> InspectJobData(const v1::InspectDataRequest& request,
                                                       const std::vector<std::string>& roots,
                                                       const DeviceRegistry& devices,
                                                       int64_t host_memory_bytes,
                                                       const std::string& token_cache_directory,
                                                       const std::function<bool(double)>& go_on) {
  PENSTOCK_ASSIGN_OR_RETURN(
      ResolvedSpec resolved,
      ResolveJobSpec(request.spec(), roots,
                     {.devices = devices.List(), .missing_gpus = devices.missing_gpus()}));
  resolved.config.token_cache_directory = token_cache_directory;
  const auto progress = [&](double fraction) {
    if (go_on(fraction)) return absl::OkStatus();
    return Error(absl::StatusCode::kCancelled, reason::kCallCancelled,
                 "the call was cancelled or its deadline passed; data read so far are not kept");
  };
  PENSTOCK_ASSIGN_OR_RETURN(const DataInspection inspection,
                            InspectData(resolved.config, {.examples = request.examples(),
                                                          .host_memory_bytes = host_memory_bytes,
                                                          .progress = progress}));
  v1::InspectDataResponse response = ToProto(inspection);
  for (std::string& warning : resolved.warnings) response.add_warnings(std::move(warning));
  return response;
}

std::shared_ptr<DeviceRegistry> MakeDevices() {
  DeviceRegistryOptions options;
  options.cpu = ToProto(DescribeCpu());
  options.cuda_version = CudaVersionOfBuild();
  options.variables = ReadVisibilityVariables();
  if (options.cuda_version != 0) options.open_driver = OpenNvml;
  return DeviceRegistry::Create(std::move(options));
}

EngineHooks Hooks() {
  EngineHooks hooks;
  hooks.make_devices = MakeDevices;
  hooks.make_planner = [](const std::vector<std::string>& roots,
                          std::shared_ptr<const DeviceRegistry> devices) -> SpecPlanner {
    return [roots, devices](const v1::JobSpec& spec, const std::string& machine) {
      return PlanJob(spec, machine, roots, *devices);
    };
  };
  hooks.make_inspector = [](const std::vector<std::string>& roots,
                            std::shared_ptr<const DeviceRegistry> devices,
                            int64_t host_memory_bytes) -> DataInspector {
    return [roots, devices, host_memory_bytes](const v1::InspectDataRequest& request,
                                               const std::string& cache,
                                               const std::function<bool(double)>& go_on) {
      return InspectJobData(request, roots, *devices, host_memory_bytes, cache, go_on);
    };
  };
  hooks.make_output_checker = [](const std::vector<std::string>& roots) -> OutputChecker {
    return [roots](const std::string& path, const std::string& field) {
      return CheckNewPath(field, path, roots);
    };
  };
  hooks.capabilities = Capabilities();
  return hooks;
}

}  // namespace
}  // namespace penstock::server

int main(int argc, char** argv) {
  return penstock::server::RunDaemon(argc, argv, penstock::server::Hooks());
}
