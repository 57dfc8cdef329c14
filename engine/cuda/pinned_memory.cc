#include "engine/cuda/pinned_memory.h"

#include <sys/resource.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/cuda/status.h"

namespace penstock::cuda {
namespace {

std::string LockLimit() {
  struct rlimit limit;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "unlimited";
  }
  return absl::StrCat("at most ", FormatBytes(static_cast<int64_t>(limit.rlim_cur)));
}

}  // namespace

absl::StatusOr<PinnedRange> PinnedRange::Register(std::byte* data, int64_t bytes) {
  if (bytes == 0) return PinnedRange();
  PENSTOCK_RETURN_IF_ERROR(RegistrationStatus(
      cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterDefault), bytes));
  return PinnedRange(data);
}

absl::Status RegistrationStatus(cudaError_t error, int64_t bytes) {
  if (error == cudaSuccess) return absl::OkStatus();
  const bool refused = error == cudaErrorMemoryAllocation || error == cudaErrorNotSupported ||
                       error == cudaErrorNotPermitted || error == cudaErrorOperatingSystem ||
                       error == cudaErrorInvalidValue;
  if (!refused) {
    return CudaStatus(error, absl::StrCat("cudaHostRegister of ", FormatBytes(bytes)));
  }
  cudaGetLastError();  // Else the next launch would be blamed for it.
  const std::string limit = LockLimit();
  return Error(absl::StatusCode::kResourceExhausted, reason::kHostMemoryInsufficient,
               absl::StrCat("cannot lock ", FormatBytes(bytes), " of host memory for the GPU (",
                            cudaGetErrorName(error), "; locked memory of this process: ", limit,
                            "); raise the limit (ulimit -l unlimited; LimitMEMLOCK=infinity in "
                            "systemd; --ulimit memlock=-1 for a container), give the container or "
                            "WSL more memory, or use a smaller model"),
               {{"needed_bytes", absl::StrCat(bytes)},
                {"limit_source", absl::StrCat("RLIMIT_MEMLOCK ", limit)},
                {"cuda_error", cudaGetErrorName(error)}});
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
