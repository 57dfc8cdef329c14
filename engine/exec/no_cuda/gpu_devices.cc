#include "engine/exec/gpu_devices.h"

#include "engine/base/status.h"

namespace penstock {

std::vector<GpuDevice> ListGpuDevices() { return {}; }

absl::StatusOr<int64_t> OpenGpu(const std::string&) {
  return Error(absl::StatusCode::kUnimplemented, reason::kDeviceUnavailable,
               "this build has no CUDA: it was made where CMake found no CUDA toolkit; run the job "
               "on the CPU, or build again on a machine with the toolkit");
}

std::string CudaToolkitName() { return "none"; }

int CudaToolkitVersion() { return 0; }

}  // namespace penstock
