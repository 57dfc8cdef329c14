// What a GPU and its driver must be able to do, as functions of the figures they report.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace penstock {

// Versions as CUDA numbers them: 1000 * major + 10 * minor. `driver_version` 0: there is none.
// Unavailable / DEVICE_UNAVAILABLE if the driver cannot run programs of `needed_version`: it runs
// those of its own major version and of older ones.
absl::Status CheckDriverVersion(int driver_version, int needed_version);

// Unimplemented / DEVICE_UNAVAILABLE for a card without bf16 (compute capability below 8.0).
absl::Status CheckComputeCapability(const std::string& name, int major, int minor);

}  // namespace penstock
