// penstockd: the control plane. It plans, queues and watches jobs; workers run them.
#include <functional>
#include <memory>
#include <optional>
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

// What a plan was made for that no job of this version runs with.
void AddPlanOnlyWarnings(const v1::PlanJobRequest& request, v1::PlanJobResponse& response) {
  if (request.moments_on_storage()) {
    response.add_warnings(
        "a plan only: moments on storage are simulated, and no executor of this version has them");
  }
}

// The rates and the device of a profile that came with the request, or of a machine by its name.
absl::Status ChooseMachine(const v1::PlanJobRequest& request, DeviceOffer& offer,
                           std::optional<NamedProfile>& profile) {
  if (!request.machine().empty() && !request.machine_profile_json().empty()) {
    return FieldError("machine", request.machine(), "nothing beside machine_profile_json");
  }
  if (!request.machine_profile_json().empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(
        MeasuredProfile measured,
        ParseProfileJson(request.machine_profile_json(), "machine_profile_json"));
    if (measured.profile.device_memory_bytes > 0) {
      offer = OfferOf({.name = measured.profile.name,
                       .card = measured.profile.card,
                       .device_memory_bytes = measured.profile.device_memory_bytes});
    }
    profile = std::move(measured.profile);
  } else if (!request.machine().empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const MachineInfo info, FindMachine(request.machine()));
    offer = OfferOf(info);
  }
  return absl::OkStatus();
}

// That of the device that the job may get, if it was measured; a stale one is a warning.
absl::Status UseMeasuredProfile(const DeviceRegistry& devices, const ProfileStore& profiles,
                                ResolvedSpec& resolved) {
  const bool cpu = resolved.config.device.backend == ComputeBackend::kCpu;
  const std::optional<v1::Device> device = devices.Find(cpu ? "cpu" : resolved.config.device.uuid);
  if (!device) return absl::OkStatus();
  ProfileStore::Found found = profiles.Find(*device);
  if (!found.warning.empty()) resolved.warnings.push_back(std::move(found.warning));
  if (found.json.empty()) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(MeasuredProfile measured,
                            ParseProfileJson(found.json, profiles.PathOf(*device)));
  resolved.config.device.profile = std::move(measured.profile);
  return absl::OkStatus();
}

// Defaults and ranges, then files and memory.
absl::StatusOr<v1::PlanJobResponse> PlanJob(const v1::PlanJobRequest& request, PlanUse use,
                                            const std::vector<std::string>& allowed_roots,
                                            const DeviceRegistry& devices,
                                            const ProfileStore& profiles) {
  DeviceOffer offer{.devices = devices.List(), .missing_gpus = devices.missing_gpus()};
  std::optional<NamedProfile> profile;
  PENSTOCK_RETURN_IF_ERROR(ChooseMachine(request, offer, profile));
  PENSTOCK_ASSIGN_OR_RETURN(ResolvedSpec resolved,
                            ResolveJobSpec(request.spec(), allowed_roots, offer));
  resolved.config.device.planned_machine = request.machine();
  if (!profile && request.machine().empty()) {
    PENSTOCK_RETURN_IF_ERROR(UseMeasuredProfile(devices, profiles, resolved));
  } else {
    resolved.config.device.profile = std::move(profile);
  }
  resolved.config.moments_on_storage = request.moments_on_storage();
  PENSTOCK_ASSIGN_OR_RETURN(
      MemoryPlanSummary plan,
      PlanTraining(resolved.config, {.program = request.with_program(),
                                     .trace = request.with_trace(),
                                     .larger_steps = use == PlanUse::kAdvise}));
  v1::PlanJobResponse response;
  *response.mutable_spec() = std::move(resolved.spec);
  response.mutable_spec()->mutable_batch()->set_micro_batch_tokens(plan.micro_batch_tokens);
  *response.mutable_plan() = ToProto(plan);
  for (std::string& warning : resolved.warnings) response.add_warnings(std::move(warning));
  AddPlanOnlyWarnings(request, response);
  response.set_step_program(std::move(plan.step_program));
  response.set_step_trace(std::move(plan.step_trace));
  return response;
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

absl::StatusOr<v1::MachineProfile> ReadProfile(const std::string& json, const std::string& origin) {
  PENSTOCK_ASSIGN_OR_RETURN(const MeasuredProfile measured, ParseProfileJson(json, origin));
  return ToProto(measured);
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
                          std::shared_ptr<const DeviceRegistry> devices,
                          std::shared_ptr<const ProfileStore> profiles) -> SpecPlanner {
    return [roots, devices, profiles](const v1::PlanJobRequest& request, PlanUse use) {
      return PlanJob(request, use, roots, *devices, *profiles);
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
  hooks.profiles = {
      .read = ReadProfile, .identity = [](const v1::Device& device) {
        return MachineIdentity(device.kind() == v1::DEVICE_KIND_CPU ? "" : device.description());
      }};
  hooks.capabilities = Capabilities();
  return hooks;
}

}  // namespace
}  // namespace penstock::server

int main(int argc, char** argv) {
  return penstock::server::RunDaemon(argc, argv, penstock::server::Hooks());
}
