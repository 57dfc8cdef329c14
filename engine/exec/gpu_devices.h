// The GPUs this process may see. exec/cuda/ asks the CUDA runtime; exec/no_cuda/ is what CMake
// picks where no toolkit is found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

struct GpuDevice {
  std::string uuid;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  std::string name;
  int64_t memory_bytes = 0;
};

// Empty without a driver or a device. Makes no CUDA context.
std::vector<GpuDevice> ListGpuDevices();

// "CUDA 13.0", or "none": what this build was made with.
std::string CudaToolkitName();

}  // namespace penstock
