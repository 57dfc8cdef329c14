#include "engine/cuda/pinned_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/cuda/status.h"

namespace penstock::cuda {

absl::StatusOr<PinnedRange> PinnedRange::Register(std::byte* data, int64_t bytes) {
  if (bytes == 0) return PinnedRange();
  const cudaError_t error =
      cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterDefault);
  if (error == cudaErrorMemoryAllocation || error == cudaErrorNotSupported) {
    cudaGetLastError();
    return Error(absl::StatusCode::kResourceExhausted, reason::kHostMemoryInsufficient,
                 absl::StrCat("cannot lock ", FormatBytes(bytes),
                              " of host memory for the device (", cudaGetErrorName(error),
                              "); raise the limit of locked memory (ulimit -l) or of the "
                              "container, or use a smaller model"),
                 {{"needed_bytes", absl::StrCat(bytes)}});
  }
  PENSTOCK_RETURN_IF_ERROR(
      CudaStatus(error, absl::StrCat("cudaHostRegister of ", FormatBytes(bytes))));
  return PinnedRange(data);
}

PinnedRange::PinnedRange(PinnedRange&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)) {}

PinnedRange& PinnedRange::operator=(PinnedRange&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

PinnedRange::~PinnedRange() {
  if (data_ != nullptr) cudaHostUnregister(data_);
}

absl::StatusOr<PinnedBuffer> AllocatePinned(int64_t bytes) {
  void* data = nullptr;
  PENSTOCK_RETURN_IF_ERROR(CudaStatus(cudaMallocHost(&data, static_cast<size_t>(bytes)),
                                      absl::StrCat("cudaMallocHost of ", FormatBytes(bytes))));
  return PinnedBuffer(static_cast<std::byte*>(data));
}

}  // namespace penstock::cuda
