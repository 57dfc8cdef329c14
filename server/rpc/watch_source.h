// What one watch stream sends next: a reader over the store's events, the metric file and the
// logs, from a cursor. Keeps a batch of events and a read buffer, nothing that grows.
//
// Order: what has happened is sent in the order events, metrics, log lines, except that the event
// that ends a job follows its last metrics and lines. Then CaughtUp, once. Then, as it happens.
// Used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "server/jobs/job_manager.h"
#include "server/store/segment_file.h"
#include "server/store/state_directory.h"

namespace penstock::server {

// InvalidArgument / REQUEST_INVALID if the request makes no sense.
absl::Status CheckWatchRequest(const v1::WatchJobsRequest& request);

class WatchSource {
 public:
  // REQUIRES: CheckWatchRequest(request) is OK.
  WatchSource(const v1::WatchJobsRequest& request, const StateDirectory& directory);

  // Empty: all jobs.
  const std::string& job() const { return job_; }
  const v1::Cursor& cursor() const { return cursor_; }

  enum class Step : uint8_t {
    kMessage,     // `message` is filled in
    kNeedsBatch,  // read events after cursor().event(), give them to AddBatch(), call again
    kAgain,       // much was passed over; call again after letting others run
    kNothing,     // all sent; call again when something has happened
    kEnd,         // End was sent
  };
  // OutOfRange / CURSOR_EXPIRED if the cursor lies beyond what there is.
  absl::StatusOr<Step> Next(v1::WatchJobsResponse& message);
  absl::Status AddBatch(std::shared_ptr<const WatchBatch> batch);
  // The store may have new events.
  void NoteEvents() { needs_batch_ = true; }
  void MakeHeartbeat(v1::WatchJobsResponse& message) const;

 private:
  bool Wants(v1::WatchKind kind) const;
  bool JobHasEnded() const;
  bool NextEventEndsTheJob() const;
  bool HasEvent() const { return batch_ != nullptr && next_event_ < batch_->events.size(); }
  const StoredEvent& NextEvent() const { return batch_->events[next_event_]; }
  // Passes over events of unwanted kinds.
  void SkipUnwantedEvents();
  void TakeEvent(v1::WatchJobsResponse& message);
  absl::StatusOr<Step> NextMetric(v1::WatchJobsResponse& message);
  absl::StatusOr<Step> NextLog(v1::WatchJobsResponse& message);
  absl::StatusOr<Step> NextData(v1::WatchJobsResponse& message);
  absl::Status FindMetricPosition();
  absl::Status CheckLogPosition() const;
  void Emit(v1::StepMetrics metrics, int64_t next_index, v1::WatchJobsResponse& message);

  const v1::WatchJobsRequest request_;
  const StateDirectory& directory_;
  const std::string job_;
  v1::Cursor cursor_;

  bool needs_batch_ = true;
  std::shared_ptr<const WatchBatch> batch_;  // the last; null: none yet
  size_t next_event_ = 0;                    // of the batch

  SegmentReader metrics_;
  int64_t last_metric_ms_ = INT64_MIN;
  // The newest point that min_metric_interval_ms held back, sent if no later one comes.
  std::optional<v1::StepMetrics> held_;
  int64_t held_index_ = 0;
  int64_t skipped_ = 0;

  bool caught_up_ = false;
  bool ended_ = false;
};

}  // namespace penstock::server
