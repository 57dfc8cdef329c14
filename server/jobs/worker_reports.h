// What workers tell: stores their events in order, each once, and answers with what the daemon
// wants done.
//
// Metric points go to the job's segment file, everything else into the store. What the GPU is
// doing meanwhile is the daemon's to know, and is added to points and progress here. What of an
// attempt is stored already is the larger of what both remember, since events are stored in order.
// Belongs to the control thread.
#pragma once

#include "absl/status/statusor.h"
#include "penstock/internal/worker.pb.h"
#include "server/devices/device_registry.h"
#include "server/jobs/job_table.h"
#include "server/store/state_directory.h"

namespace penstock::server {

class WorkerReports {
 public:
  WorkerReports(JobTable& table, const StateDirectory& directory, const DeviceRegistry& devices)
      : table_(table), directory_(directory), devices_(devices) {}

  // FailedPrecondition / STALE_ATTEMPT if the attempt is not, or no longer, the job's.
  absl::StatusOr<internal::AttachResponse> Attach(const internal::AttachRequest& request);
  absl::StatusOr<internal::ReportResponse> Report(internal::ReportRequest request);

  // Opens the job's metric file and finds what is stored of the attempt. Call once after the
  // worker was started or adopted.
  absl::Status Open(ActiveJob& job);

  // Stores what an ended worker had not yet reported, from attempts/{n}/journal.seg.
  // REQUIRES: Open() was called.
  absl::Status TakeJournal(ActiveJob& job);

 private:
  // Null if `identity` is not the worker of its job.
  ActiveJob* WorkerOf(const internal::WorkerIdentity& identity);
  absl::Status Store(ActiveJob& job, internal::WorkerEvent event);
  absl::Status StoreMetrics(ActiveJob& job, internal::WorkerEvent event);
  absl::Status StartTraining(ActiveJob& job, uint64_t number);
  void PublishLog(ActiveJob& job);

  JobTable& table_;
  const StateDirectory& directory_;
  const DeviceRegistry& devices_;
};

}  // namespace penstock::server
