// What parallel work over weights reports while it runs, and its first failure.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace penstock {

// Called with bytes done and in all, one call at a time, from any pool thread. A status that is
// not OK stops the work and is returned from it: how a job is cancelled while it imports.
using ProgressFunction = absl::FunctionRef<absl::Status(int64_t done_bytes, int64_t total_bytes)>;

// Shared by the tasks of one ParallelFor. Thread-safe.
class SharedProgress {
 public:
  SharedProgress(int64_t total_bytes, ProgressFunction report)
      : total_bytes_(total_bytes), report_(report) {}

  // Tasks look at this before they start: after a failure the rest is skipped.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }

  // The end of one task: its bytes if it went well, its failure otherwise.
  void Finish(const absl::Status& task, int64_t bytes) {
    std::lock_guard lock(mutex_);
    if (!status_.ok()) return;
    status_ = task;
    if (task.ok()) {
      done_bytes_ += bytes;
      status_ = report_(done_bytes_, total_bytes_);
    }
    if (!status_.ok()) failed_.store(true, std::memory_order_relaxed);
  }

  // REQUIRES: no task is running.
  const absl::Status& status() const { return status_; }

 private:
  const int64_t total_bytes_;
  const ProgressFunction report_;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  int64_t done_bytes_ = 0;  // guarded by mutex_, as status_
  absl::Status status_;
};

}  // namespace penstock
