// What clients ask for about checkpoints: the operations behind CheckpointService, but for exports,
// which are jobs. Replies to repeated request ids as in JobManager.
// Belongs to the control thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/train/checkpoint_directory.h"
#include "penstock/v1/checkpoint_service.pb.h"
#include "server/jobs/file_sources.h"
#include "server/jobs/job_table.h"
#include "server/jobs/request_checks.h"
#include "server/store/state_directory.h"

namespace penstock::server {

class CheckpointManager {
 public:
  CheckpointManager(const StateDirectory& directory, JobTable& table, FileSources& downloads)
      : directory_(directory), table_(table), downloads_(downloads) {}

  absl::StatusOr<v1::ListCheckpointsResponse> List(const v1::ListCheckpointsRequest& request);
  absl::StatusOr<v1::GetCheckpointResponse> Get(const v1::GetCheckpointRequest& request);
  absl::StatusOr<v1::SaveCheckpointResponse> Save(const v1::SaveCheckpointRequest& request);
  absl::StatusOr<v1::PinCheckpointResponse> Pin(const v1::PinCheckpointRequest& request);
  // The files then lie in the trash; emptying it is the caller's.
  absl::StatusOr<v1::DeleteCheckpointResponse> Delete(const v1::DeleteCheckpointRequest& request);

  // Takes the checkpoints after `name` out of the way of a job that goes back to it.
  // FailedPrecondition / CHECKPOINT_IN_USE, with all of them where they were, if one is held.
  absl::Status SupersedeAfter(const CheckpointName& name);

  // FailedPrecondition / CHECKPOINT_IN_USE while a client fetches one of the job's.
  absl::Status CheckNotDownloaded(const std::string& job) { return downloads_.ReleaseAll(job); }

  // Forgets checkpoints of `jobs` whose directory is gone: a crash came between the two halves of
  // Delete(). Once, at start.
  absl::Status Recover(const std::vector<std::string>& jobs);

 private:
  absl::StatusOr<v1::Checkpoint> Find(const CheckpointName& name);
  // FailedPrecondition / CHECKPOINT_IN_USE.
  static absl::Status CheckNotHeld(const CheckpointHolds& holds, const CheckpointName& name);
  absl::Status CheckDeletable(const CheckpointName& name);

  const StateDirectory& directory_;
  JobTable& table_;
  FileSources& downloads_;
};

}  // namespace penstock::server
