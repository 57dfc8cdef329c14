#include "engine/cuda/pinned_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
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

absl::StatusOr<PinnedRanges> PinnedRanges::Register(const std::vector<std::span<std::byte>>& ranges,
                                                    PageLock lock, ThreadPool& pool) {
  int device = 0;
  PENSTOCK_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "cudaGetDevice"));
  const auto register_range = [device](std::byte* data, size_t bytes) {
    cudaError_t error = cudaSetDevice(device);
    if (error == cudaSuccess) error = cudaHostRegister(data, bytes, cudaHostRegisterDefault);
    cudaGetLastError();  // The runtime keeps it for this thread, which is the pool's.
    return error;
  };
  return Register(ranges, lock, pool,
                  {register_range, [](std::byte* data) { cudaHostUnregister(data); }});
}

absl::StatusOr<PinnedRanges> PinnedRanges::Register(const std::vector<std::span<std::byte>>& ranges,
                                                    PageLock lock, ThreadPool& pool, Calls calls) {
  int64_t total_bytes = 0;
  std::vector<std::span<std::byte>> queue;
  for (const std::span<std::byte> range : ranges) {
    total_bytes += static_cast<int64_t>(range.size());
    if (!range.empty()) queue.push_back(range);
  }
  PinnedRanges pinned(std::move(calls));
  pinned.unlocked_bytes_ = total_bytes;
  if (lock == PageLock::kOff) return pinned;
  // Largest first, so that none is begun when the others are done.
  std::stable_sort(queue.begin(), queue.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  std::vector<std::byte*> registered(queue.size(), nullptr);
  std::atomic<int64_t> registered_bytes = 0;
  std::atomic<size_t> next = 0;
  std::atomic<cudaError_t> failure = cudaSuccess;
  pool.ParallelFor(pool.size(), [&](int64_t, int) {
    for (size_t i = next++; i < queue.size() && failure == cudaSuccess; i = next++) {
      const cudaError_t error = pinned.calls_.lock(queue[i].data(), queue[i].size());
      if (error == cudaSuccess) {
        registered[i] = queue[i].data();
        registered_bytes += static_cast<int64_t>(queue[i].size());
      } else {
        failure = error;
      }
    }
  });
  std::erase(registered, nullptr);
  pinned.registered_ = std::move(registered);
  pinned.unlocked_bytes_ = total_bytes - registered_bytes;
  pinned.refusal_ = RegistrationStatus(failure, total_bytes);
  if (lock == PageLock::kRequired || !absl::IsResourceExhausted(pinned.refusal_)) {
    PENSTOCK_RETURN_IF_ERROR(pinned.refusal_);
  }
  return pinned;
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
                            "WSL more memory, use a smaller model, or say "
                            "limits.page_lock: preferred to go on with slower copies"),
               {{"needed_bytes", absl::StrCat(bytes)},
                {"limit_source", absl::StrCat("RLIMIT_MEMLOCK ", limit)},
                {"cuda_error", cudaGetErrorName(error)}});
}

PinnedRanges::PinnedRanges(PinnedRanges&& other) noexcept
    : calls_(std::move(other.calls_)),
      registered_(std::exchange(other.registered_, {})),
      unlocked_bytes_(other.unlocked_bytes_),
      refusal_(std::move(other.refusal_)) {}

PinnedRanges& PinnedRanges::operator=(PinnedRanges&& other) noexcept {
  std::swap(calls_, other.calls_);
  std::swap(registered_, other.registered_);
  std::swap(unlocked_bytes_, other.unlocked_bytes_);
  std::swap(refusal_, other.refusal_);
  return *this;
}

PinnedRanges::~PinnedRanges() {
  for (std::byte* data : registered_) calls_.unlock(data);
}

absl::StatusOr<PinnedBuffer> AllocatePinned(int64_t bytes) {
  void* data = nullptr;
  PENSTOCK_RETURN_IF_ERROR(CudaStatus(cudaMallocHost(&data, static_cast<size_t>(bytes)),
                                      absl::StrCat("cudaMallocHost of ", FormatBytes(bytes))));
  return PinnedBuffer(static_cast<std::byte*>(data));
}

}  // namespace penstock::cuda
