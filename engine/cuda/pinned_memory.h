// Host memory that the copy engines reach directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/thread_pool.h"
#include "engine/cuda/handle.h"
#include "engine/memory/page_lock.h"

namespace penstock::cuda {

// Ranges of somebody else's memory, registered for as long as this object lives.
class PinnedRanges {
 public:
  // Registers each range by itself, several at once: pinning is the work of the thread that asks
  // for it. So no copy may cross from one range into another; ranges start on pages and may be
  // empty. Memory that was touched before is pinned many times faster (memory/host_memory.h).
  // For the calling thread's device. With kRequired all ranges are registered, or none:
  // RegistrationStatus() of a refusal, with the bytes of all. With kPreferred a refusal leaves the
  // ranges not yet registered as they are. Any other error is returned in either case.
  static absl::StatusOr<PinnedRanges> Register(const std::vector<std::span<std::byte>>& ranges,
                                               PageLock lock, ThreadPool& pool);

  // The same with other calls than the runtime's; `lock` comes from all threads of the pool.
  struct Calls {
    std::function<cudaError_t(std::byte* data, size_t bytes)> lock;
    std::function<void(std::byte* data)> unlock;
  };
  static absl::StatusOr<PinnedRanges> Register(const std::vector<std::span<std::byte>>& ranges,
                                               PageLock lock, ThreadPool& pool, Calls calls);

  // Of the ranges asked for. Why they are not registered: the refusal, or OK if none was asked for.
  int64_t unlocked_bytes() const { return unlocked_bytes_; }
  const absl::Status& refusal() const { return refusal_; }

  PinnedRanges() = default;
  PinnedRanges(PinnedRanges&& other) noexcept;
  PinnedRanges& operator=(PinnedRanges&& other) noexcept;
  ~PinnedRanges();

 private:
  explicit PinnedRanges(Calls calls) : calls_(std::move(calls)) {}
  Calls calls_;
  std::vector<std::byte*> registered_;
  int64_t unlocked_bytes_ = 0;
  absl::Status refusal_;
};

// What cudaHostRegister's result means: ResourceExhausted / HOST_MEMORY_INSUFFICIENT with the bytes
// and the limits that may be at fault where the system refuses (ulimit -l, a container, WSL). No
// error stays pending in the runtime.
absl::Status RegistrationStatus(cudaError_t error, int64_t bytes);

using PinnedBuffer = Handle<std::byte*, cudaFreeHost>;
absl::StatusOr<PinnedBuffer> AllocatePinned(int64_t bytes);

}  // namespace penstock::cuda
