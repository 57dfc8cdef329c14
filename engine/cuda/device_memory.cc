#include "engine/cuda/device_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/cuda/status.h"

namespace penstock::cuda {

absl::StatusOr<DeviceMemory> DeviceMemory::Allocate(int64_t bytes) {
  if (bytes == 0) return DeviceMemory();
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free_bytes = 0, total_bytes = 0;
    PENSTOCK_RETURN_IF_ERROR(
        CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo"));
    return Error(absl::StatusCode::kResourceExhausted, reason::kDeviceMemoryInsufficient,
                 absl::StrCat("cannot allocate ", FormatBytes(bytes),
                              " of device memory: ", FormatBytes(static_cast<int64_t>(free_bytes)),
                              " of ", FormatBytes(static_cast<int64_t>(total_bytes)),
                              " are free; lower batch.micro_batch_tokens or stop other users of "
                              "the device"),
                 {{"needed_bytes", absl::StrCat(bytes)}, {"free_bytes", absl::StrCat(free_bytes)}});
  }
  PENSTOCK_RETURN_IF_ERROR(CudaStatus(error, absl::StrCat("cudaMalloc of ", FormatBytes(bytes))));
  return DeviceMemory(static_cast<std::byte*>(data), bytes);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) cudaFree(data_);
}

}  // namespace penstock::cuda
