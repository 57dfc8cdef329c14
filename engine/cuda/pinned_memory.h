// Host memory that the copy engines reach directly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/cuda/handle.h"

namespace penstock::cuda {

// A range of somebody else's memory, registered for as long as this object lives.
class PinnedRange {
 public:
  // RegistrationStatus() if the driver refuses. `data` is page-aligned; an empty range is fine.
  static absl::StatusOr<PinnedRange> Register(std::byte* data, int64_t bytes);

  PinnedRange() = default;
  PinnedRange(PinnedRange&& other) noexcept;
  PinnedRange& operator=(PinnedRange&& other) noexcept;
  ~PinnedRange();

 private:
  explicit PinnedRange(std::byte* data) : data_(data) {}
  std::byte* data_ = nullptr;
};

// What cudaHostRegister's result means: ResourceExhausted / HOST_MEMORY_INSUFFICIENT with the bytes
// and the limits that may be at fault where the system refuses (ulimit -l, a container, WSL). No
// error stays pending in the runtime.
absl::Status RegistrationStatus(cudaError_t error, int64_t bytes);

using PinnedBuffer = Handle<std::byte*, cudaFreeHost>;
absl::StatusOr<PinnedBuffer> AllocatePinned(int64_t bytes);

}  // namespace penstock::cuda
