#include "server/jobs/worker_reports.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "google/protobuf/util/time_util.h"
#include "server/fault/fault_point.h"
#include "server/jobs/metric_store.h"
#include "server/store/job_state.h"
#include "server/store/log_file.h"
#include "spdlog/spdlog.h"

namespace penstock::server {

using google::protobuf::util::TimeUtil;
namespace {

// Whether the job has got on since its last report, and how long that took.
void NotePace(RunningWorker& worker, const v1::JobProgress& before, const v1::JobProgress& now) {
  const bool stood = before.phase() == now.phase() && before.step() == now.step() &&
                     before.phase_fraction() == now.phase_fraction();
  if (stood) return;
  const auto time = RunningWorker::Clock::now();
  const std::chrono::duration<double> pause = time - std::exchange(worker.last_progress, time);
  worker.pace.longest_seconds = std::max(worker.pace.longest_seconds, pause.count());
  worker.pace.has_step |= now.phase() == v1::JOB_PHASE_TRAIN && now.step() > before.step();
}

}  // namespace

absl::Status WorkerReports::Open(ActiveJob& job) {
  const std::string path = directory_.Metrics(job.name());
  const int32_t attempt = job.stored.job.attempt();
  PENSTOCK_ASSIGN_OR_RETURN(SegmentWriter metrics, SegmentWriter::Open(path));
  if (metrics.cut_bytes() > 0) {
    spdlog::warn("{}: cut {} bytes of a torn record", path, metrics.cut_bytes());
  }
  PENSTOCK_ASSIGN_OR_RETURN(const uint64_t in_file, LastMetricNumber(path, attempt));
  PENSTOCK_ASSIGN_OR_RETURN(const StoredAttempt stored,
                            table_.store().GetAttempt(job.name(), attempt));
  job.worker->acknowledged = std::max(in_file, stored.acknowledged);
  job.worker->outcome = stored.outcome;
  job.worker->outcome_time = RunningWorker::Clock::now();
  job.worker->metrics = std::move(metrics);
  return absl::OkStatus();
}

absl::Status WorkerReports::TakeJournal(ActiveJob& job) {
  const std::string path =
      directory_.Attempt(job.name(), job.stored.job.attempt()) + "/journal.seg";
  SegmentReader journal(path);
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string> record, journal.Next());
    internal::WorkerEvent event;
    if (!record || !event.ParseFromString(*record)) return absl::OkStatus();
    // After a gap the worker had run out of disk; what follows has no place.
    if (event.number() > job.worker->acknowledged + 1) return absl::OkStatus();
    const absl::Status stored = Store(job, std::move(event));
    // An event that makes no sense would do so at every try; a full disk may not.
    if (absl::IsInvalidArgument(stored)) return absl::OkStatus();
    PENSTOCK_RETURN_IF_ERROR(stored);
  }
}

ActiveJob* WorkerReports::WorkerOf(const internal::WorkerIdentity& identity) {
  ActiveJob* job = table_.Find(identity.job());
  if (job == nullptr || !job->worker || !job->worker->metrics) return nullptr;
  if (identity.attempt() != job->stored.job.attempt()) return nullptr;
  if (job->worker->process && job->worker->process->pid() != identity.pid()) return nullptr;
  return job;
}

absl::StatusOr<internal::AttachResponse> WorkerReports::Attach(
    const internal::AttachRequest& request) {
  ActiveJob* job = WorkerOf(request.identity());
  if (job == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, reason::kStaleAttempt,
                 absl::StrCat("attempt ", request.identity().attempt(), " by process ",
                              request.identity().pid(), " is not the current one of ",
                              request.identity().job()),
                 {{"job", request.identity().job()},
                  {"attempt", absl::StrCat(request.identity().attempt())}});
  }
  job->worker->last_report = RunningWorker::Clock::now();
  internal::AttachResponse response;
  response.set_acknowledged(job->worker->acknowledged);
  return response;
}

absl::StatusOr<internal::ReportResponse> WorkerReports::Report(internal::ReportRequest request) {
  internal::ReportResponse response;
  ActiveJob* job = WorkerOf(request.identity());
  if (job == nullptr) {
    response.set_command(internal::WORKER_COMMAND_EXIT);
    return response;
  }
  job->worker->last_report = RunningWorker::Clock::now();
  const uint64_t acknowledged_before = job->worker->acknowledged;
  for (internal::WorkerEvent& event : *request.mutable_events()) {
    PENSTOCK_RETURN_IF_ERROR(Store(*job, std::move(event)));
  }
  if (request.has_progress()) {
    v1::JobProgress& progress = *job->stored.job.mutable_progress();
    NotePace(*job->worker, progress, request.progress());
    progress = std::move(*request.mutable_progress());
    *progress.mutable_update_time() = TimeUtil::GetCurrentTime();
    if (auto reading = devices_.Reading(job->worker->device)) {
      *progress.mutable_device_reading() = *std::move(reading);
    }
    table_.ShowLive(*job);
  }
  if (job->worker->acknowledged != acknowledged_before) {
    table_.hub().Publish(job->name(), Topic::kData);
  }
  PublishLog(*job);
  response.set_acknowledged(job->worker->acknowledged);
  response.set_command(IsStopping(job->state()) ? internal::WORKER_COMMAND_STOP
                                                : internal::WORKER_COMMAND_CONTINUE);
  response.set_save_request(job->worker->save_request);
  response.set_trace_request(job->worker->trace_request);
  return response;
}

void WorkerReports::PublishLog(ActiveJob& job) {
  const int64_t bytes = FileSize(directory_.Log(job.name(), job.stored.job.attempt()));
  if (std::exchange(job.worker->log_bytes, bytes) != bytes) {
    table_.hub().Publish(job.name(), Topic::kData);
  }
}

absl::Status WorkerReports::Store(ActiveJob& job, internal::WorkerEvent event) {
  RunningWorker& worker = *job.worker;
  const uint64_t number = event.number();
  if (number <= worker.acknowledged) return absl::OkStatus();  // sent again, stored already
  if (number != worker.acknowledged + 1) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
                 absl::StrCat("event ", number, " of ", job.name(), " came after ",
                              worker.acknowledged, "; events come without gap"));
  }
  const std::string& name = job.name();
  const int32_t attempt = job.stored.job.attempt();
  JobStore& store = table_.store();
  switch (event.event_case()) {
    case internal::WorkerEvent::kTrainingStarted:
      PENSTOCK_RETURN_IF_ERROR(StartTraining(job, number));
      break;
    case internal::WorkerEvent::kMetrics:
      PENSTOCK_RETURN_IF_ERROR(StoreMetrics(job, std::move(event)));
      break;
    case internal::WorkerEvent::kCheckpointSaved: {
      v1::Checkpoint& checkpoint = *event.mutable_checkpoint_saved();
      checkpoint.set_name(absl::StrCat(name, "/checkpoints/", checkpoint.step()));
      checkpoint.set_attempt(attempt);
      FaultPoint("report.checkpoint");
      PENSTOCK_RETURN_IF_ERROR(store.AddCheckpoint(name, attempt, number, checkpoint));
      table_.hub().Publish(name, Topic::kEvents);
      break;
    }
    case internal::WorkerEvent::kCheckpointRemoved:
      PENSTOCK_RETURN_IF_ERROR(
          store.RemoveCheckpoint(name, attempt, number, event.checkpoint_removed()));
      break;
    case internal::WorkerEvent::kCheckpointFailed:
    case internal::WorkerEvent::kPlanMissed: {
      v1::WatchJobsResponse told;
      if (event.has_plan_missed()) {
        *told.mutable_plan_missed() = event.plan_missed();
      } else {
        *told.mutable_checkpoint_failed() = event.checkpoint_failed();
      }
      PENSTOCK_RETURN_IF_ERROR(store.AddEvent(name, attempt, number, std::move(told)));
      table_.hub().Publish(name, Topic::kEvents);
      break;
    }
    case internal::WorkerEvent::kOutcome:
      FaultPoint("report.outcome");
      PENSTOCK_RETURN_IF_ERROR(store.SetOutcome(name, attempt, number, event.outcome()));
      worker.outcome = std::move(*event.mutable_outcome());
      worker.outcome_time = RunningWorker::Clock::now();
      break;
    case internal::WorkerEvent::kTraceWritten:
      PENSTOCK_RETURN_IF_ERROR(store.Acknowledge(name, attempt, number));
      worker.trace_written = event.trace_written();
      break;
    case internal::WorkerEvent::EVENT_NOT_SET:
      return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
                   absl::StrCat("event ", number, " of ", name, " says nothing"));
  }
  worker.acknowledged = number;
  return absl::OkStatus();
}

absl::Status WorkerReports::StoreMetrics(ActiveJob& job, internal::WorkerEvent event) {
  event.mutable_metrics()->set_attempt(job.stored.job.attempt());
  job.worker->last_step = std::max(job.worker->last_step, int64_t{event.metrics().step()});
  if (auto reading = devices_.Reading(job.worker->device)) {
    *event.mutable_metrics()->mutable_device_reading() = *std::move(reading);
  }
  if (static_cast<int64_t>(event.ByteSizeLong()) > kMaxSegmentRecordBytes) {
    // It could never be stored and would hold up all that follows.
    spdlog::error("{}: metric point of step {} is too large and is dropped", job.name(),
                  event.metrics().step());
    return table_.store().Acknowledge(job.name(), job.stored.job.attempt(), event.number());
  }
  return job.worker->metrics->Append(event.SerializeAsString());
}

absl::Status WorkerReports::StartTraining(ActiveJob& job, uint64_t number) {
  if (job.state() == v1::JOB_STATE_STARTING) {
    v1::Job after = job.stored.job;
    after.set_state(v1::JOB_STATE_RUNNING);
    PENSTOCK_RETURN_IF_ERROR(table_.Move(job, std::move(after), job.stored.worker_deaths));
  }
  // A second transaction: if it is lost, the event comes again and finds the job RUNNING.
  return table_.store().Acknowledge(job.name(), job.stored.job.attempt(), number);
}

}  // namespace penstock::server
