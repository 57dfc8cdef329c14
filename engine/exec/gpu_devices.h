// The GPUs this process may see. exec/cuda/ asks the CUDA runtime; exec/no_cuda/ is what CMake
// picks where no toolkit is found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

struct GpuDevice {
  std::string uuid;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  std::string name;
  int64_t memory_bytes = 0;
};

// Empty without a driver or a device. Makes no CUDA context.
std::vector<GpuDevice> ListGpuDevices();

// Makes the GPU with this UUID the current one of the process, with a context, and gives the
// bytes it has free after that. A "MIG-..." slice has to be the only device that
// CUDA_VISIBLE_DEVICES leaves, as CUDA asks it anyway; an empty UUID takes the first device.
//
// Unavailable / DEVICE_UNAVAILABLE without a driver, with one too old, or if there is no such
// device, with those there are; Unimplemented / DEVICE_UNAVAILABLE for a card without bf16 or a
// build without CUDA.
absl::StatusOr<int64_t> OpenGpu(const std::string& uuid);

// "CUDA 13.0", or "none": what this build was made with.
std::string CudaToolkitName();
// 1000 * major + 10 * minor, or 0.
int CudaToolkitVersion();

}  // namespace penstock
