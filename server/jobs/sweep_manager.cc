#include "server/jobs/sweep_manager.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/access/call.h"
#include "server/jobs/request_replay.h"
#include "server/jobs/sweep_points.h"

namespace penstock::server {
namespace {

v1::CreateSweepResponse ReplyFor(const std::vector<v1::Job>& jobs) {
  v1::CreateSweepResponse response;
  response.set_name(jobs.front().sweep_point().sweep());
  for (const v1::Job& job : jobs) {
    v1::SweepJob& made = *response.add_jobs();
    made.set_name(job.name());
    *made.mutable_values() = job.sweep_point().values();
    made.set_host_peak_bytes(job.plan().host_peak_bytes());
    made.set_device_bytes(job.plan().device_bytes());
    if (job.plan().has_estimate()) *made.mutable_estimate() = job.plan().estimate();
    *made.mutable_warnings() = job.warnings();
  }
  return response;
}

}  // namespace

absl::StatusOr<std::optional<v1::CreateSweepResponse>> SweepManager::Begin(
    const v1::CreateSweepRequest& request, int64_t jobs) {
  if (!request.validate_only()) {
    PENSTOCK_ASSIGN_OR_RETURN(auto replay,
                              Replay<v1::CreateSweepResponse>(table_.store(), request));
    if (replay) return replay;
  }
  PENSTOCK_RETURN_IF_ERROR(admission_.CheckRoom(CurrentUser(), jobs));
  const std::string name = "sweeps/" + request.sweep_id();
  if (!request.sweep_id().empty() && table_.store().owners().Find(name)) {
    return Error(absl::StatusCode::kAlreadyExists, reason::kJobExists,
                 absl::StrCat("there are jobs of ", name, "; choose another sweep_id, leave it ",
                              "empty, or delete them first"),
                 {{"sweep", name}, {"field", "sweep_id"}});
  }
  return std::nullopt;
}

absl::StatusOr<v1::CreateSweepResponse> SweepManager::Finish(const v1::CreateSweepRequest& request,
                                                             std::vector<PlannedSweepJob> planned) {
  // Once more: other calls, maybe of the same id, came in between.
  PENSTOCK_ASSIGN_OR_RETURN(auto replay, Begin(request, static_cast<int64_t>(planned.size())));
  if (replay) return *replay;
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, MakeJobs(request, std::move(planned)));
  v1::CreateSweepResponse response = ReplyFor(jobs);
  if (request.validate_only()) return response;
  PENSTOCK_RETURN_IF_ERROR(jobs_.Insert(jobs, MakeRecord(request, response)));
  return response;
}

absl::StatusOr<std::vector<v1::Job>> SweepManager::MakeJobs(const v1::CreateSweepRequest& request,
                                                            std::vector<PlannedSweepJob> planned) {
  std::string id = request.sweep_id();
  if (id.empty()) id = JobManager::NewId('s');
  std::vector<v1::Job> jobs;
  std::map<std::string, int32_t> outputs;  // who writes where
  for (PlannedSweepJob& one : planned) {
    const int32_t number = one.point.number();
    const std::string context = absl::StrCat("job ", number, " (", PointText(one.point), ")");
    const std::string name =
        request.validate_only() ? "" : absl::StrCat("jobs/", id, SweepSuffix(number));
    PENSTOCK_RETURN_IF_ERROR(Annotate(jobs_.CheckUnplanned(one.planned.spec()), context));
    absl::StatusOr<v1::Job> job = jobs_.MakeJob(name, std::move(one.planned));
    if (!job.ok()) return Annotate(job.status(), context);
    const std::string& output = job->train().output().directory();
    const auto [other, is_free] = outputs.emplace(output, number);
    if (!is_free && !output.empty()) {
      return Error(absl::StatusCode::kAlreadyExists, reason::kOutputExists,
                   absl::StrCat(context, ": ", output, " is where job ", other->second,
                                " will write; choose another directory for each"),
                   {{"path", output}, {"field", "output.directory"}});
    }
    *job->mutable_sweep_point() = std::move(one.point);
    if (!request.validate_only()) job->mutable_sweep_point()->set_sweep("sweeps/" + id);
    jobs.push_back(*std::move(job));
  }
  return jobs;
}

}  // namespace penstock::server
