#include "server/jobs/job_admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "server/jobs/request_checks.h"
#include "server/reasons.h"
#include "server/store/job_state.h"

namespace penstock::server {

JobAdmission::JobAdmission(AdmissionOptions options, JobTable& table, const WorkerManager& workers)
    : options_(std::move(options)), table_(table), workers_(workers) {}

absl::Status JobAdmission::CheckOpen() const {
  if (workers_.admission() != Admission::kDraining) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable, reason::kServerDraining,
               "the daemon is shutting down and takes no new jobs; try again when it is back",
               {{"retry_seconds", "5"}});
}

namespace {

// " and 12 more would come", for calls that bring several.
std::string AndMore(int64_t jobs) {
  return jobs == 1 ? "" : absl::StrCat(" and ", jobs, " more would come");
}

}  // namespace

absl::Status JobAdmission::CheckQuota(const std::string& owner, int64_t jobs) const {
  const int64_t limit = QuotaOf(options_.quotas, owner).queued_jobs();
  if (limit == 0) return absl::OkStatus();
  const auto& active = table_.active();
  const int64_t waiting = std::count_if(active.begin(), active.end(), [&](const auto& entry) {
    const ActiveJob& job = *entry.second;
    return job.stored.job.owner() == owner && !HasWorker(job.state());
  });
  if (waiting + jobs <= limit) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted, reason::kQuotaExceeded,
               absl::StrCat(waiting, " jobs of ", owner, " wait", AndMore(jobs),
                            ", and the quota is ", limit,
                            " (queued_jobs); wait for one to start, cancel one, or ask an admin "
                            "for a larger quota"),
               {{"user", owner},
                {"queued", absl::StrCat(waiting)},
                {"limit", absl::StrCat(limit)},
                {"retry_seconds", "30"}});
}

absl::Status JobAdmission::CheckRoom(const std::string& owner, int64_t jobs) const {
  PENSTOCK_RETURN_IF_ERROR(CheckOpen());
  PENSTOCK_RETURN_IF_ERROR(CheckQuota(owner, jobs));
  const int64_t waiting =
      table_.CountInState(v1::JOB_STATE_QUEUED) + table_.CountInState(v1::JOB_STATE_PAUSED);
  if (waiting + jobs <= options_.max_queued_jobs) return absl::OkStatus();
  return Error(
      absl::StatusCode::kResourceExhausted, reason::kQueueFull,
      absl::StrCat(waiting, " jobs wait", AndMore(jobs), ", and ", options_.max_queued_jobs,
                   " may (max_queued_jobs); wait for one to start or cancel one"),
      {{"queued", absl::StrCat(waiting)},
       {"limit", absl::StrCat(options_.max_queued_jobs)},
       {"retry_seconds", "30"}});
}

absl::Status JobAdmission::CheckMemory(const v1::JobPlan& plan) const {
  const int64_t usable = workers_.options().host_memory_bytes;
  if (plan.host_peak_bytes() <= usable) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted, reason::kHostMemoryInsufficient,
               absl::StrCat("the job needs ", FormatBytes(plan.host_peak_bytes()),
                            " of host memory and can never have more than ", FormatBytes(usable),
                            " (", options_.host_memory_limit_source,
                            "); use a smaller model or batch, or raise the limit"),
               {{"needed_bytes", absl::StrCat(plan.host_peak_bytes())},
                {"usable_bytes", absl::StrCat(usable)},
                {"limit_source", options_.host_memory_limit_source}});
}

absl::Status JobAdmission::CheckOutputFree(const std::string& directory,
                                           const std::string& field) const {
  if (directory.empty()) return absl::OkStatus();
  if (absl::StartsWith(directory, options_.uploads_directory + "/")) {
    return Error(absl::StatusCode::kPermissionDenied, reason::kPathNotAllowed,
                 absl::StrCat(field, ": ", directory,
                              " is among the uploads, which nobody writes to; choose a directory "
                              "under an allowed root"),
                 {{"field", field}, {"found", directory}});
  }
  for (const auto& [row, job] : table_.active()) {
    const v1::Job& other = job->stored.job;
    const std::string& taken =
        other.has_train() ? other.train().output().directory() : other.export_().directory();
    if (taken != directory) continue;
    return Error(absl::StatusCode::kAlreadyExists, reason::kOutputExists,
                 absl::StrCat(directory, " is where ", other.name(),
                              " will write; choose another directory, or wait for that job"),
                 {{"path", directory}, {"job", other.name()}, {"field", field}});
  }
  return absl::OkStatus();
}

absl::Status JobAdmission::CheckParents(const v1::QueueSpec& queue) const {
  for (int i = 0; i < queue.after_size(); ++i) {
    const std::string field = absl::StrCat("queue.after[", i, "]");
    const std::string& name = queue.after(i);
    if (const absl::Status form = CheckJobName(name, field); !form.ok()) {
      return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
                   std::string(form.message()), {{"field", field}});
    }
    PENSTOCK_ASSIGN_OR_RETURN(const v1::Job parent, table_.Get(name));
    const bool failed = IsFinal(parent.state()) && parent.state() != v1::JOB_STATE_SUCCEEDED;
    if (!failed || (queue.after_rule() != v1::AFTER_RULE_SUCCEEDED &&
                    queue.after_rule() != v1::AFTER_RULE_UNSPECIFIED)) {
      continue;
    }
    return Error(absl::StatusCode::kFailedPrecondition, reason::kJobStateConflict,
                 absl::StrCat(field, ": ", name, " is ", StateName(parent.state()),
                              ", so the job would never start; resume that one first, or choose "
                              "queue.after_rule wait or ended"),
                 {{"job", name}, {"state", StateName(parent.state())}, {"field", field}});
  }
  return absl::OkStatus();
}

}  // namespace penstock::server
