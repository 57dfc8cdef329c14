// The process around a Daemon: command line, logs, signals, service manager, exit code.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/devices/device_registry.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/profile_store.h"

namespace penstock::server {

// What the daemon asks the engine and the machine.
struct EngineHooks {
  // Called once, when the process has blocked its signals: the registry has a thread.
  std::function<std::shared_ptr<DeviceRegistry>()> make_devices;
  std::function<SpecPlanner(const std::vector<std::string>& allowed_roots,
                            std::shared_ptr<const DeviceRegistry> devices,
                            std::shared_ptr<const ProfileStore> profiles)>
      make_planner;
  std::function<DataInspector(const std::vector<std::string>& allowed_roots,
                              std::shared_ptr<const DeviceRegistry> devices,
                              int64_t host_memory_bytes)>
      make_inspector;
  std::function<OutputChecker(const std::vector<std::string>& allowed_roots)> make_output_checker;
  ProfileHooks profiles;
  std::vector<std::string> capabilities;
};

// What main() of penstockd does; returns the exit code.
// REQUIRES: no other thread runs yet.
int RunDaemon(int argc, char** argv, EngineHooks hooks);

}  // namespace penstock::server
