// The process around a Daemon: command line, logs, signals, service manager, exit code.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "penstock/v1/admin_service.pb.h"
#include "server/jobs/job_manager.h"

namespace penstock::server {

// What the daemon asks the engine.
struct EngineHooks {
  std::function<SpecPlanner(const std::vector<std::string>& allowed_roots)> make_planner;
  std::function<OutputChecker(const std::vector<std::string>& allowed_roots)> make_output_checker;
  std::vector<v1::Device> devices;
  std::vector<std::string> capabilities;
};

// What main() of penstockd does; returns the exit code.
// REQUIRES: no other thread runs yet.
int RunDaemon(int argc, char** argv, EngineHooks hooks);

}  // namespace penstock::server
