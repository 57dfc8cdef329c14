#include "server/jobs/job_moves.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "google/protobuf/util/time_util.h"
#include "server/jobs/request_checks.h"
#include "server/jobs/request_replay.h"
#include "server/store/job_state.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
using google::protobuf::util::TimeUtil;
namespace {

void PutIntoQueue(v1::Job& job, int64_t step) {
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_state_reason(v1::STATE_REASON_RESUME_REQUESTED);
  job.set_state_message(step > 0 ? absl::StrCat("goes on after step ", step) : "");
  *job.mutable_queue_time() = TimeUtil::GetCurrentTime();
}

// What an ended job is when it waits again, to go on after `step`.
v1::Job Requeued(v1::Job job, int64_t step) {
  PutIntoQueue(job, step);
  job.clear_error();
  job.clear_failure_class();
  job.clear_last_log_lines();
  job.clear_progress();
  job.clear_end_time();
  job.clear_artifacts();
  job.clear_failed_devices();
  job.clear_last_worker_death();
  job.clear_not_before();
  job.clear_preemptions();
  job.clear_run_seconds();
  return job;
}

absl::Status StateConflict(const v1::Job& job, const std::string& what) {
  return Error(absl::StatusCode::kFailedPrecondition, reason::kJobStateConflict,
               absl::StrCat(job.name(), " is ", job.has_train() ? "" : "an export, and ",
                            StateName(job.state()), what),
               {{"job", job.name()}, {"state", StateName(job.state())}});
}

}  // namespace

JobMoves::JobMoves(const StateDirectory& directory, JobTable& table,
                   const CheckpointReaders& readers, const JobAdmission& admission,
                   CheckpointManager& checkpoints, WorkerManager& workers)
    : directory_(directory),
      table_(table),
      readers_(readers),
      admission_(admission),
      checkpoints_(checkpoints),
      workers_(workers) {}

// ---- Stopping ----

namespace {

// The job after it has been asked to be cancelled.
v1::Job AskedToCancel(v1::Job job) {
  job.set_state_reason(v1::STATE_REASON_CANCEL_REQUESTED);
  job.clear_state_message();
  job.clear_queue_position();
  if (HasWorker(job.state())) {
    job.set_state(v1::JOB_STATE_CANCELLING);
  } else {
    job.set_state(v1::JOB_STATE_CANCELLED);
    *job.mutable_end_time() = TimeUtil::GetCurrentTime();
  }
  return job;
}

}  // namespace

absl::StatusOr<v1::CancelJobResponse> JobMoves::Cancel(const v1::CancelJobRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto replay, Replay<v1::CancelJobResponse>(table_.store(), request));
  if (replay) return *replay;
  PENSTOCK_ASSIGN_OR_RETURN(StoredJob stored, table_.store().GetJob(request.name()));
  const int32_t deaths = stored.worker_deaths;
  v1::CancelJobResponse response;
  v1::Job& after = *response.mutable_job();
  after = table_.Live(std::move(stored));
  const v1::JobState from = after.state();
  if (IsFinal(from)) return StateConflict(after, ", which has ended: there is nothing to cancel");
  after = AskedToCancel(std::move(after));
  const auto record = MakeRecord(request, response);
  if (from == v1::JOB_STATE_CANCELLING) {
    if (record) PENSTOCK_RETURN_IF_ERROR(table_.store().InsertRequest(*record));
    return response;
  }
  PENSTOCK_RETURN_IF_ERROR(
      table_.Move(*table_.Find(request.name()), after, deaths, record ? &*record : nullptr));
  workers_.Dispatch();
  return response;
}

absl::StatusOr<v1::CancelSweepResponse> JobMoves::CancelSweep(
    const v1::CancelSweepRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto replay, Replay<v1::CancelSweepResponse>(table_.store(), request));
  if (replay) return *replay;
  if (!table_.store().owners().Find(request.name())) {
    return Error(absl::StatusCode::kNotFound, reason::kJobNotFound,
                 absl::StrCat("no job is of ", request.name(), "; ListJobs shows what there is"),
                 {{"sweep", request.name()}});
  }
  v1::CancelSweepResponse response;
  for (const auto& [row, job] : table_.active()) {
    if (job->stored.job.sweep_point().sweep() == request.name()) response.add_jobs(job->name());
  }
  // A daemon that dies in between has no reply stored, so that the call, repeated, does the rest.
  for (const std::string& name : response.jobs()) {
    ActiveJob& job = *table_.Find(name);
    if (job.state() == v1::JOB_STATE_CANCELLING) continue;
    PENSTOCK_ASSIGN_OR_RETURN(v1::Job now, table_.Get(name));
    PENSTOCK_RETURN_IF_ERROR(
        table_.Move(job, AskedToCancel(std::move(now)), job.stored.worker_deaths));
  }
  if (const auto record = MakeRecord(request, response)) {
    PENSTOCK_RETURN_IF_ERROR(table_.store().InsertRequest(*record));
  }
  workers_.Dispatch();
  return response;
}

absl::StatusOr<v1::PauseJobResponse> JobMoves::Pause(const v1::PauseJobRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto replay, Replay<v1::PauseJobResponse>(table_.store(), request));
  if (replay) return *replay;
  PENSTOCK_ASSIGN_OR_RETURN(StoredJob stored, table_.store().GetJob(request.name()));
  const int32_t deaths = stored.worker_deaths;
  v1::PauseJobResponse response;
  v1::Job& after = *response.mutable_job();
  after = table_.Live(std::move(stored));
  const v1::JobState from = after.state();
  if (!after.has_train()) return StateConflict(after, "; only training jobs can be paused");
  const bool done = from == v1::JOB_STATE_PAUSED || from == v1::JOB_STATE_PAUSING;
  const v1::JobState to = HasWorker(from) ? v1::JOB_STATE_PAUSING : v1::JOB_STATE_PAUSED;
  if (!done && !CanMove(from, to)) return StateConflict(after, "; there is nothing to pause");
  if (!done) {
    after.set_state(to);
    after.set_state_reason(v1::STATE_REASON_PAUSE_REQUESTED);
    after.clear_state_message();
    after.clear_queue_position();
    after.clear_not_before();
  }
  const auto record = MakeRecord(request, response);
  if (done) {
    if (record) PENSTOCK_RETURN_IF_ERROR(table_.store().InsertRequest(*record));
    return response;
  }
  PENSTOCK_RETURN_IF_ERROR(
      table_.Move(*table_.Find(request.name()), after, deaths, record ? &*record : nullptr));
  workers_.Dispatch();
  return response;
}

// ---- Going on ----

absl::StatusOr<int64_t> JobMoves::ResumableStep(const v1::ResumeJobRequest& request) {
  if (!request.checkpoint().empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const CheckpointName name,
                              ParseCheckpointName(request.checkpoint(), "checkpoint"));
    if (name.job != request.name()) {
      return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
                   absl::StrCat("checkpoint: found ", request.checkpoint(), ", expected one of ",
                                request.name(),
                                "; a new job can start from another job's checkpoint "
                                "(start_checkpoint)"),
                   {{"field", "checkpoint"}});
    }
    PENSTOCK_RETURN_IF_ERROR(table_.store().GetCheckpoint(name.job, name.step).status());
    return name.step;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const auto all,
                            table_.store().ListCheckpoints(request.name(), -1, INT64_MAX));
  if (!all.empty()) return all.back().step();
  return Error(absl::StatusCode::kNotFound, reason::kCheckpointNotFound,
               absl::StrCat(request.name(), " has no checkpoint to go on from; submit it again"),
               {{"job", request.name()}});
}

absl::StatusOr<v1::ResumeJobResponse> JobMoves::Resume(const v1::ResumeJobRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto replay, Replay<v1::ResumeJobResponse>(table_.store(), request));
  if (replay) return *replay;
  PENSTOCK_ASSIGN_OR_RETURN(const StoredJob stored, table_.store().GetJob(request.name()));
  const v1::JobState from = stored.job.state();
  if (from == v1::JOB_STATE_PAUSED) return Unpause(request, *table_.Find(request.name()));
  if (!stored.job.has_train() || !CanMove(from, v1::JOB_STATE_QUEUED) || !IsFinal(from)) {
    return StateConflict(stored.job,
                         "; only a training job that is PAUSED, has FAILED or was CANCELLED can "
                         "be resumed");
  }
  PENSTOCK_RETURN_IF_ERROR(admission_.CheckRoom(stored.job.owner(), 1));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t step, ResumableStep(request));
  v1::ResumeJobResponse response;
  v1::Job& after = *response.mutable_job();
  after = Requeued(stored.job, step);
  PENSTOCK_RETURN_IF_ERROR(admission_.CheckMemory(after.plan()));
  PENSTOCK_RETURN_IF_ERROR(
      admission_.CheckOutputFree(after.train().output().directory(), "output.directory"));
  PENSTOCK_RETURN_IF_ERROR(checkpoints_.SupersedeAfter({.job = request.name(), .step = step}));
  PENSTOCK_RETURN_IF_ERROR(readers_.Begin(after));
  const auto record = MakeRecord(request, response);
  if (absl::Status moved = table_.Reopen(from, after, record ? &*record : nullptr); !moved.ok()) {
    readers_.End(after);
    return moved;
  }
  workers_.Dispatch();
  return response;
}

absl::StatusOr<v1::ResumeJobResponse> JobMoves::Unpause(const v1::ResumeJobRequest& request,
                                                        ActiveJob& job) {
  PENSTOCK_RETURN_IF_ERROR(admission_.CheckOpen());
  int64_t step = job.stored.job.progress().step();
  if (!request.checkpoint().empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(step, ResumableStep(request));
    PENSTOCK_RETURN_IF_ERROR(checkpoints_.SupersedeAfter({.job = request.name(), .step = step}));
  }
  v1::ResumeJobResponse response;
  v1::Job& after = *response.mutable_job();
  after = job.stored.job;
  PutIntoQueue(after, step);
  const auto record = MakeRecord(request, response);
  PENSTOCK_RETURN_IF_ERROR(
      table_.Move(job, after, job.stored.worker_deaths, record ? &*record : nullptr));
  workers_.Dispatch();
  return response;
}

// ---- Deleting ----

absl::Status JobMoves::CheckNotInUse(const std::string& job) {
  for (const auto& [row, active] : table_.active()) {
    const v1::Job& other = active->stored.job;
    if (const std::optional<CheckpointName> read = CheckpointReadBy(other);
        read && read->job == job) {
      return Error(absl::StatusCode::kFailedPrecondition, reason::kCheckpointInUse,
                   absl::StrCat(other.name(), " reads the checkpoint of step ", read->step, " of ",
                                job, "; wait for its end or cancel it"),
                   {{"job", job}, {"used_by", other.name()}});
    }
    const auto& parents = other.train().queue().after();
    if (other.attempt() == 0 && std::find(parents.begin(), parents.end(), job) != parents.end()) {
      return Error(absl::StatusCode::kFailedPrecondition, reason::kJobStateConflict,
                   absl::StrCat(other.name(), " has not started and waits for the end of ", job,
                                " (queue.after); wait for its start or cancel it"),
                   {{"job", job}, {"used_by", other.name()}});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::DeleteJobResponse> JobMoves::Delete(const v1::DeleteJobRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto replay, Replay<v1::DeleteJobResponse>(table_.store(), request));
  if (replay) return *replay;
  PENSTOCK_RETURN_IF_ERROR(CheckNotInUse(request.name()));
  PENSTOCK_RETURN_IF_ERROR(checkpoints_.CheckNotDownloaded(request.name()));
  v1::DeleteJobResponse response;
  const auto record = MakeRecord(request, response);
  PENSTOCK_RETURN_IF_ERROR(table_.store().DeleteJob(request.name(), record ? &*record : nullptr));
  table_.hub().Publish(request.name(), Topic::kEvents);
  if (absl::Status discarded = directory_.Discard(request.name()); !discarded.ok()) {
    // The job is gone all the same; the next start moves its files.
    spdlog::error("{}: {}", request.name(), std::string(discarded.message()));
  }
  return response;
}

}  // namespace penstock::server
