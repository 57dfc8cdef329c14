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
  // Within drain_seconds, then what still runs is left to the next daemon:
  kSave,   // running jobs save their last finished step and wait in the queue
  kDrain,  // running jobs run to their end
  kLeave,  // they are left at once
};

struct Settings {
  internal::DaemonConfig config;  // every field set
  OnTerminate on_terminate = OnTerminate::kSave;
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
