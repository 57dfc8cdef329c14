// Measured timelines of steps, on request: the worker is asked with its next report, and writes a
// file (ReportResponse.trace_request). Belongs to the control thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/jobs/job_table.h"
#include "server/store/state_directory.h"

namespace penstock::server {

struct TraceTicket {
  std::string job;
  int32_t attempt = 0;
  uint64_t request = 0;
};

class TraceRequests {
 public:
  TraceRequests(const StateDirectory& directory, JobTable& table)
      : directory_(directory), table_(table) {}

  // Asks the job's worker. NotFound / JOB_NOT_FOUND; FailedPrecondition / JOB_STATE_CONFLICT for a
  // job that is not RUNNING.
  absl::StatusOr<TraceTicket> Request(const std::string& job);
  // The file, once it is written; nothing while the step runs. FailedPrecondition /
  // JOB_STATE_CONFLICT if the attempt does not run any more.
  absl::StatusOr<std::optional<std::string>> Find(const TraceTicket& ticket);

 private:
  const StateDirectory& directory_;
  JobTable& table_;
};

}  // namespace penstock::server
