// Creates sweeps: the operation behind CreateSweep, in two halves like that of a job
// (job_manager.h), between which the grid is written out and each job planned on another thread.
// Belongs to the control thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "server/jobs/job_admission.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_table.h"

namespace penstock::server {

struct PlannedSweepJob {
  v1::SweepPoint point;
  v1::PlanJobResponse planned;
};

class SweepManager {
 public:
  SweepManager(JobTable& table, const JobAdmission& admission, JobManager& jobs)
      : table_(table), admission_(admission), jobs_(jobs) {}

  // The stored reply, or nothing if its `jobs` jobs may be planned.
  absl::StatusOr<std::optional<v1::CreateSweepResponse>> Begin(
      const v1::CreateSweepRequest& request, int64_t jobs);
  absl::StatusOr<v1::CreateSweepResponse> Finish(const v1::CreateSweepRequest& request,
                                                 std::vector<PlannedSweepJob> planned);

 private:
  // Without names if the call only validates.
  absl::StatusOr<std::vector<v1::Job>> MakeJobs(const v1::CreateSweepRequest& request,
                                                std::vector<PlannedSweepJob> planned);

  JobTable& table_;
  const JobAdmission& admission_;
  JobManager& jobs_;
};

}  // namespace penstock::server
