// penstockd: the control plane. It plans, queues and watches jobs; workers run them.
#include "engine/engine.h"
#include "server/run_daemon.h"
#include "server/spec/convert.h"
#include "server/spec/job_spec.h"
#include "server/spec/spec_fields.h"

namespace penstock::server {
namespace {

// Defaults and ranges, then files and memory.
absl::StatusOr<PlannedJob> PlanJob(const v1::JobSpec& spec,
                                   const std::vector<std::string>& allowed_roots) {
  PENSTOCK_ASSIGN_OR_RETURN(ResolvedSpec resolved, ResolveJobSpec(spec, allowed_roots));
  PENSTOCK_ASSIGN_OR_RETURN(const MemoryPlanSummary plan, PlanTraining(resolved.config));
  return PlannedJob{.spec = std::move(resolved.spec),
                    .plan = ToProto(plan),
                    .warnings = std::move(resolved.warnings)};
}

EngineHooks Hooks() {
  EngineHooks hooks;
  hooks.make_planner = [](const std::vector<std::string>& roots) -> SpecPlanner {
    return [roots](const v1::JobSpec& spec) { return PlanJob(spec, roots); };
  };
  hooks.make_output_checker = [](const std::vector<std::string>& roots) -> OutputChecker {
    return [roots](const std::string& path, const std::string& field) {
      return CheckNewPath(field, path, roots);
    };
  };
  for (const DeviceInfo& device : ListDevices()) hooks.devices.push_back(ToProto(device));
  hooks.capabilities = Capabilities();
  return hooks;
}

}  // namespace
}  // namespace penstock::server

int main(int argc, char** argv) {
  return penstock::server::RunDaemon(argc, argv, penstock::server::Hooks());
}
