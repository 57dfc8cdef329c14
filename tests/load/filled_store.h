// A store with jobs that have ended, written by the daemon's own store code.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"

namespace penstock::load {

// Adds `count` jobs like `job`, named jobs/stored-{i}. No daemon may have the directory.
absl::Status FillStore(const std::string& state_directory, const v1::Job& job, int64_t count);
std::string StoredName(int64_t i);

}  // namespace penstock::load
