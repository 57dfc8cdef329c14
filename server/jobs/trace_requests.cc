#include "server/jobs/trace_requests.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/store/job_state.h"

namespace penstock::server {
namespace {

absl::Status NotRunning(const v1::Job& job) {
  return Error(absl::StatusCode::kFailedPrecondition, reason::kJobStateConflict,
               absl::StrCat(job.name(), job.has_train() ? " is " : " is an export, and ",
                            StateName(job.state()),
                            "; only a training job that is RUNNING has steps to trace"),
               {{"job", job.name()}, {"state", StateName(job.state())}});
}

// Above every value that this daemon, or one before it, has told the worker.
uint64_t NextRequest(uint64_t last) {
  const auto now =
      static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  return std::max(now, last + 1);
}

}  // namespace

absl::StatusOr<TraceTicket> TraceRequests::Request(const std::string& job) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Job now, table_.Get(job));
  ActiveJob* active = table_.Find(job);
  if (!now.has_train() || now.state() != v1::JOB_STATE_RUNNING || active == nullptr ||
      !active->worker) {
    return NotRunning(now);
  }
  RunningWorker& worker = *active->worker;
  worker.trace_request = NextRequest(std::max(worker.trace_request, worker.trace_written));
  return TraceTicket{.job = job, .attempt = now.attempt(), .request = worker.trace_request};
}

absl::StatusOr<std::optional<std::string>> TraceRequests::Find(const TraceTicket& ticket) {
  const ActiveJob* active = table_.Find(ticket.job);
  const bool runs =
      active != nullptr && active->worker && active->stored.job.attempt() == ticket.attempt;
  if (runs && active->worker->trace_written >= ticket.request) {
    return directory_.Trace(ticket.job, ticket.attempt);
  }
  // One that saves and stops may still finish its step, but need not.
  if (runs && active->state() == v1::JOB_STATE_RUNNING) return std::nullopt;
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Job now, table_.Get(ticket.job));
  return NotRunning(now);
}

}  // namespace penstock::server
