// Moves of jobs that clients ask for: cancel, pause, resume, delete. Replies to repeated request
// ids as in JobManager. Belongs to the control thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "server/jobs/checkpoint_manager.h"
#include "server/jobs/checkpoint_readers.h"
#include "server/jobs/job_admission.h"
#include "server/jobs/job_table.h"
#include "server/jobs/worker_manager.h"

namespace penstock::server {

class JobMoves {
 public:
  JobMoves(const StateDirectory& directory, JobTable& table, const CheckpointReaders& readers,
           const JobAdmission& admission, CheckpointManager& checkpoints, WorkerManager& workers);

  absl::StatusOr<v1::CancelJobResponse> Cancel(const v1::CancelJobRequest& request);
  absl::StatusOr<v1::CancelSweepResponse> CancelSweep(const v1::CancelSweepRequest& request);
  absl::StatusOr<v1::PauseJobResponse> Pause(const v1::PauseJobRequest& request);
  absl::StatusOr<v1::ResumeJobResponse> Resume(const v1::ResumeJobRequest& request);
  // The job's files then lie in the trash; emptying it is the caller's.
  absl::StatusOr<v1::DeleteJobResponse> Delete(const v1::DeleteJobRequest& request);

 private:
  // The step to go on from.
  absl::StatusOr<int64_t> ResumableStep(const v1::ResumeJobRequest& request);
  // A paused job, from where it was.
  absl::StatusOr<v1::ResumeJobResponse> Unpause(const v1::ResumeJobRequest& request,
                                                ActiveJob& job);
  // FailedPrecondition: CHECKPOINT_IN_USE if another job reads one of its checkpoints,
  // JOB_STATE_CONFLICT if one waits for its end.
  absl::Status CheckNotInUse(const std::string& job);

  const StateDirectory& directory_;
  JobTable& table_;
  const CheckpointReaders& readers_;
  const JobAdmission& admission_;
  CheckpointManager& checkpoints_;
  WorkerManager& workers_;
};

}  // namespace penstock::server
