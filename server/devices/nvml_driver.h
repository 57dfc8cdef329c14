// The GPU driver through NVML, the library that comes with it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/devices/gpu_driver.h"

namespace penstock::server {

// Loads libnvidia-ml.so.1 when called, so one binary runs with and without a driver. NotFound if
// there is no such library: this machine has no NVIDIA driver. Unavailable / DEVICE_UNAVAILABLE if
// the driver is there and does not work.
absl::StatusOr<std::unique_ptr<GpuDriver>> OpenNvml();

}  // namespace penstock::server
