// How many files may be on their way at one time. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

namespace penstock::server {

class TransferStreams {
 public:
  explicit TransferStreams(int64_t most) : most_(most) {}

  // ResourceExhausted / TOO_MANY_STREAMS. Each that is OK is followed by one End().
  absl::Status Begin();
  void End() { open_.fetch_sub(1, std::memory_order_relaxed); }
  int64_t open() const { return open_.load(std::memory_order_relaxed); }

 private:
  const int64_t most_;
  std::atomic<int64_t> open_ = 0;
};

}  // namespace penstock::server
