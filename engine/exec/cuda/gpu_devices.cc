#include "engine/exec/gpu_devices.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_format.h"

namespace penstock {

std::vector<GpuDevice> ListGpuDevices() {
  int count = 0;
  // Fails where there is no driver; then there is nothing to list.
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};
  std::vector<GpuDevice> devices;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) continue;
    std::string uuid = "GPU-";
    for (int byte = 0; byte < 16; ++byte) {
      if (byte == 4 || byte == 6 || byte == 8 || byte == 10) uuid += '-';
      uuid += absl::StrFormat("%02x", static_cast<unsigned char>(properties.uuid.bytes[byte]));
    }
    devices.push_back({.uuid = std::move(uuid),
                       .name = properties.name,
                       .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem)});
  }
  return devices;
}

std::string CudaToolkitName() {
  return absl::StrFormat("CUDA %d.%d", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

}  // namespace penstock
