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
  // ResourceExhausted / HOST_MEMORY_INSUFFICIENT if the driver refuses (ulimit -l, a container's
  // limit). `data` is page-aligned; an empty range is fine.
  static absl::StatusOr<PinnedRange> Register(std::byte* data, int64_t bytes);

  PinnedRange() = default;
  PinnedRange(PinnedRange&& other) noexcept;
  PinnedRange& operator=(PinnedRange&& other) noexcept;
  ~PinnedRange();

 private:
  explicit PinnedRange(std::byte* data) : data_(data) {}
  std::byte* data_ = nullptr;
};

using PinnedBuffer = Handle<std::byte*, cudaFreeHost>;
absl::StatusOr<PinnedBuffer> AllocatePinned(int64_t bytes);

}  // namespace penstock::cuda
