// Keeps the daemon informed and hears what it wants, on a thread of its own: the training thread
// never waits for the daemon, and trains on while the daemon is away.
//
//   kDetached --Attach--> kAttached --a call fails--> kDetached (and again, after a pause)
//
// A report goes out promptly after an event and twice a second without one; it is the heartbeat.
// Events the daemon has not acknowledged are sent again. If the daemon says that this attempt is
// over (STALE_ATTEMPT or the command EXIT), the process ends at once, touching nothing: another
// worker may own the job's files by now.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/engine.h"
#include "penstock/internal/worker.grpc.pb.h"
#include "server/worker/event_journal.h"

namespace penstock::server {

class Reporter {
 public:
  // `journal` must outlive the reporter. `socket` is the path of the daemon's worker socket.
  Reporter(const std::string& socket, internal::WorkerIdentity identity, EventJournal* journal);
  // Stops reporting; what is not acknowledged stays so.
  ~Reporter();

  // Any thread.
  void Record(internal::WorkerEvent event);
  void SetProgress(const v1::JobProgress& progress);
  // Whether the daemon has asked to cancel the job.
  Wish wish() const { return wish_.load(std::memory_order_relaxed); }

  // Whether the daemon has asked for a checkpoint since the last call. Training thread only.
  bool TakeSaveRequest() {
    const uint64_t request = save_request_.load(std::memory_order_relaxed);
    return std::exchange(taken_save_request_, request) != request && request != 0;
  }

  // The daemon's request for a timeline, if it is another one than at the last call; else 0.
  // Training thread only.
  uint64_t TakeTraceRequest() {
    const uint64_t request = trace_request_.load(std::memory_order_relaxed);
    return std::exchange(taken_trace_request_, request) != request ? request : 0;
  }

  // Waits until the daemon has stored everything recorded so far; false if it has not by then.
  bool WaitUntilAcknowledged(absl::Duration limit);

 private:
  void Run();
  absl::Status Attach();
  absl::Status Report();
  void WaitForWork();
  bool Stopping();

  const internal::WorkerIdentity identity_;
  EventJournal* const journal_;
  std::unique_ptr<internal::WorkerService::Stub> stub_;
  std::atomic<Wish> wish_ = Wish::kContinue;
  std::atomic<uint64_t> save_request_ = 0;  // the daemon's newest
  uint64_t taken_save_request_ = 0;         // training thread only
  std::atomic<uint64_t> trace_request_ = 0;
  uint64_t taken_trace_request_ = 0;

  absl::Mutex mutex_;
  v1::JobProgress progress_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_news_ ABSL_GUARDED_BY(mutex_) = false;
  bool attached_ = false;  // reporter thread only

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace penstock::server
