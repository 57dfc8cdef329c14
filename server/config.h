// penstockd's settings: a config file (message DaemonConfig), overridden by flags.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/internal/config.pb.h"

namespace penstock::server {

enum class OnTerminate : uint8_t {
  kDrain,  // wait for running jobs, at most drain_seconds, then leave them to the next daemon
  kLeave,  // leave them at once
};

struct Settings {
  internal::DaemonConfig config;  // every field set
  OnTerminate on_terminate = OnTerminate::kDrain;
  std::string worker_binary;  // default: penstock-worker beside this program
};

struct ParsedCommandLine {
  Settings settings;
  // Set when there is nothing to run: --help, --version, or a usage error (already printed).
  bool exits = false;
  int exit_code = 0;
};

// InvalidArgument / CONFIG_INVALID or SPEC_INVALID for a file or value that cannot be.
absl::StatusOr<ParsedCommandLine> ParseCommandLine(int argc, char** argv);

}  // namespace penstock::server
