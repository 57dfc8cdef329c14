// The events of one attempt, from the moment they happen until the daemon has stored them.
//
// They are written to attempts/{n}/journal.seg first, so a worker whose daemon is away for a night
// of training holds a few hundred of them in memory and the rest on disk. The file is started anew
// whenever all of it is acknowledged. If the disk fails, up to kMaxEventsInMemory stay in memory
// and further metric points are dropped and counted; other events are few and always kept.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "penstock/internal/worker.pb.h"
#include "server/store/segment_file.h"

namespace penstock::server {

class EventJournal {
 public:
  static constexpr int64_t kMaxBatchEvents = 256;
  static constexpr int64_t kMaxBatchBytes = int64_t{1} << 20;
  static constexpr size_t kMaxEventsInMemory = 10'000;
  static constexpr int64_t kRestartBytes = int64_t{4} << 20;

  // `path` must not exist: an attempt has one worker.
  static absl::StatusOr<std::unique_ptr<EventJournal>> Create(const std::string& path);

  // Numbers the event, from 1 and without gap, and keeps it.
  void Append(internal::WorkerEvent event);

  // The oldest events that are not acknowledged, at most a batch. The same ones until
  // Acknowledge() is called.
  std::vector<internal::WorkerEvent> Batch();
  void Acknowledge(uint64_t number);

  bool HasPending() const;
  uint64_t last_number() const;
  // Metric points that a failing disk has cost since the last call.
  int64_t TakeDropped();

 private:
  explicit EventJournal(std::string path);
  absl::Status Restart() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillBatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  mutable absl::Mutex mutex_;
  std::optional<SegmentWriter> writer_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<SegmentReader> reader_ ABSL_GUARDED_BY(mutex_);
  int64_t file_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Read and not acknowledged; then what is in the file; then what the file could not take.
  std::deque<internal::WorkerEvent> batch_ ABSL_GUARDED_BY(mutex_);
  std::deque<internal::WorkerEvent> unwritten_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t acknowledged_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace penstock::server
