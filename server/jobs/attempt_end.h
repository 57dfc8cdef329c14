// What the end of a worker makes of its job: reads what the worker left behind, asks
// AfterWorkerEnd(), and stores the answer. Belongs to the control thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/devices/device_registry.h"
#include "server/jobs/decisions.h"
#include "server/jobs/job_table.h"
#include "server/jobs/worker_reports.h"
#include "server/store/state_directory.h"

namespace penstock::server {

class AttemptEnds {
 public:
  AttemptEnds(const StateDirectory& directory, JobTable& table, WorkerReports& reports,
              DeviceRegistry& devices)
      : directory_(directory), table_(table), reports_(reports), devices_(devices) {}

  // The job's worker has ended. `exit` is unknown if another daemon was its parent.
  // REQUIRES: WorkerReports::Open() was called. After an error, which is one of the store or the
  // disk, the call can be repeated.
  absl::Status End(ActiveJob& job, ExitFacts exit);

  // Whether the attempt has left an outcome, in the store or in its file.
  absl::StatusOr<bool> HasOutcome(const std::string& job, int32_t attempt) const;

  // An event of the job that has the device.
  void TellDeviceChange(const std::string& job, const v1::Device& device);

 private:
  WorkerEnd Describe(const ActiveJob& job, ExitFacts exit) const;
  // The job as the decision leaves it.
  v1::Job After(const ActiveJob& job, const WorkerEnd& end, const EndDecision& decision) const;
  // Makes the store's list of checkpoints equal to the directories there are: a worker that died
  // between saving one and reporting it leaves a whole checkpoint that nobody knows.
  absl::Status SyncCheckpoints(const ActiveJob& job);

  const StateDirectory& directory_;
  JobTable& table_;
  WorkerReports& reports_;
  DeviceRegistry& devices_;
};

}  // namespace penstock::server
