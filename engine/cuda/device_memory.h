// Device memory with one owner.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace penstock::cuda {

// One cudaMalloc. Contents are undefined; movable.
class DeviceMemory {
 public:
  // ResourceExhausted / DEVICE_MEMORY_INSUFFICIENT with the bytes wanted and free if the device
  // cannot hold them. `bytes` of 0 gives an empty object.
  static absl::StatusOr<DeviceMemory> Allocate(int64_t bytes);

  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  DeviceMemory(std::byte* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace penstock::cuda
