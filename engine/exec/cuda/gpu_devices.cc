#include "engine/exec/gpu_devices.h"

#include <cuda_runtime_api.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/cuda/status.h"
#include "engine/exec/gpu_checks.h"

namespace penstock {
namespace {

std::string UuidText(const cudaDeviceProp& properties) {
  std::string uuid = "GPU-";
  for (int byte = 0; byte < 16; ++byte) {
    if (byte == 4 || byte == 6 || byte == 8 || byte == 10) uuid += '-';
    uuid += absl::StrFormat("%02x", static_cast<unsigned char>(properties.uuid.bytes[byte]));
  }
  return uuid;
}

// Index of the device, or Unavailable.
absl::StatusOr<int> FindDevice(const std::string& uuid, int count) {
  if (uuid.empty() || (absl::StartsWith(uuid, "MIG-") && count == 1)) return 0;
  std::string found;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties;
    PENSTOCK_RETURN_IF_ERROR(
        cuda::CudaStatus(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties"));
    const std::string text = UuidText(properties);
    if (text == uuid) return index;
    absl::StrAppend(&found, found.empty() ? "" : ", ", text);
  }
  return Error(absl::StatusCode::kUnavailable, reason::kDeviceUnavailable,
               absl::StrCat("no device has the UUID ", uuid, "; this process sees ", found),
               {{"device", uuid}});
}

}  // namespace

std::vector<GpuDevice> ListGpuDevices() {
  int count = 0;
  // Fails where there is no driver; then there is nothing to list.
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};
  std::vector<GpuDevice> devices;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) continue;
    devices.push_back({.uuid = UuidText(properties),
                       .name = properties.name,
                       .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem)});
  }
  return devices;
}

absl::StatusOr<int64_t> OpenGpu(const std::string& uuid) {
  int driver_version = 0;
  PENSTOCK_RETURN_IF_ERROR(
      cuda::CudaStatus(cudaDriverGetVersion(&driver_version), "cudaDriverGetVersion"));
  PENSTOCK_RETURN_IF_ERROR(CheckDriverVersion(driver_version, CUDART_VERSION));
  int count = 0;
  PENSTOCK_RETURN_IF_ERROR(cuda::CudaStatus(cudaGetDeviceCount(&count), "cudaGetDeviceCount"));
  PENSTOCK_ASSIGN_OR_RETURN(const int index, FindDevice(uuid, count));
  cudaDeviceProp properties;
  PENSTOCK_RETURN_IF_ERROR(
      cuda::CudaStatus(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties"));
  PENSTOCK_RETURN_IF_ERROR(
      CheckComputeCapability(properties.name, properties.major, properties.minor));
  PENSTOCK_RETURN_IF_ERROR(cuda::CudaStatus(cudaSetDevice(index), "cudaSetDevice"));
  size_t free_bytes = 0, total_bytes = 0;
  PENSTOCK_RETURN_IF_ERROR(
      cuda::CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo"));
  return static_cast<int64_t>(free_bytes);
}

std::string CudaToolkitName() {
  return absl::StrFormat("CUDA %d.%d", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

int CudaToolkitVersion() { return CUDART_VERSION; }

}  // namespace penstock
