// What has to hold before a job may wait in the queue. Belongs to the control thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"
#include "server/access/quota.h"
#include "server/jobs/job_table.h"
#include "server/jobs/worker_manager.h"

namespace penstock::server {

struct AdmissionOptions {
  int64_t max_queued_jobs = 1000;
  std::string host_memory_limit_source;
  Quotas quotas;
  // Where complete uploads lie, which nobody writes to.
  std::string uploads_directory;
};

class JobAdmission {
 public:
  JobAdmission(AdmissionOptions options, JobTable& table, const WorkerManager& workers);

  // Unavailable / SERVER_DRAINING.
  absl::Status CheckOpen() const;
  // That, and ResourceExhausted / QUEUE_FULL, or QUOTA_EXCEEDED, for so many jobs of this owner.
  // Jobs that are paused count: they will be back.
  absl::Status CheckRoom(const std::string& owner, int64_t jobs) const;
  // ResourceExhausted / HOST_MEMORY_INSUFFICIENT for a plan that never fits.
  absl::Status CheckMemory(const v1::JobPlan& plan) const;
  // No unfinished job will write to the same directory: the later one would lose its work. And it
  // is no upload's.
  absl::Status CheckOutputFree(const std::string& directory, const std::string& field) const;
  // The jobs of queue.after are there and can still come to the end that the job waits for.
  // InvalidArgument / SPEC_INVALID, NotFound / JOB_NOT_FOUND, FailedPrecondition /
  // JOB_STATE_CONFLICT.
  absl::Status CheckParents(const v1::QueueSpec& queue) const;

  const AdmissionOptions& options() const { return options_; }

 private:
  absl::Status CheckQuota(const std::string& owner, int64_t jobs) const;

  const AdmissionOptions options_;
  JobTable& table_;
  const WorkerManager& workers_;
};

}  // namespace penstock::server
