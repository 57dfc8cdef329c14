// penstockd: the control plane. It plans, queues and watches jobs; workers run them.
#include <memory>
#include <utility>

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
