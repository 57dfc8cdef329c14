#include "server/jobs/worker_manager.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "google/protobuf/util/time_util.h"
#include "server/fault/fault_point.h"
#include "server/jobs/checkpoint_readers.h"
#include "server/jobs/request_checks.h"
#include "server/jobs/schedule_snapshot.h"
#include "server/jobs/worker_lock.h"
#include "server/rpc/grpc_status.h"
#include "server/store/job_state.h"
#include "server/store/log_file.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
using google::protobuf::util::TimeUtil;
namespace {

constexpr std::string_view kCpuDevice = "cpu";
constexpr int64_t kMaxAssignmentBytes = 4 << 20;
constexpr std::chrono::milliseconds kStoreRetry{1000};

struct Kill {
  KillCause cause;
  int64_t seconds;  // the limit that was passed
  const char* words;
};

// Whether the worker of a job has to be killed now, and why.
std::optional<Kill> WhyKill(const ActiveJob& job, const WorkerOptions& options,
                            RunningWorker::Clock::time_point now) {
  using std::chrono::duration_cast;
  using std::chrono::seconds;
  const RunningWorker& worker = *job.worker;
  if (worker.outcome) {
    if (now - worker.outcome_time <= options.linger) return std::nullopt;
    return Kill{KillCause::kLingered, 0, "does not exit"};
  }
  if (now - worker.last_report > options.silence) {
    return Kill{KillCause::kSilence, duration_cast<seconds>(options.silence).count(), "is silent"};
  }
  const int64_t grace = job.stored.job.train().limits().grace_seconds();
  if (worker.stop_time && grace > 0 && now - *worker.stop_time > seconds(grace)) {
    return Kill{KillCause::kGrace, grace, "was asked to stop and has not"};
  }
  const int64_t stuck = options.stuck_after(worker.pace);
  if (now - worker.last_progress > seconds(stuck)) {
    return Kill{KillCause::kStuck, stuck, "does not get on"};
  }
  return std::nullopt;
}

}  // namespace

WorkerManager::WorkerManager(WorkerOptions options, const StateDirectory& directory,
                             JobTable& table, WorkerReports& reports, DeviceRegistry& devices,
                             TaskQueue& control, std::unique_ptr<ProcessWatcher> watcher)
    : options_(std::move(options)),
      directory_(directory),
      table_(table),
      reports_(reports),
      devices_(devices),
      ends_(directory, table, reports, devices),
      control_(control),
      watcher_(std::move(watcher)) {}

int64_t WorkerManager::reserved_bytes() const {
  int64_t bytes = 0;
  for (const auto& [row, job] : table_.active()) {
    if (HasWorker(job->state())) bytes += job->host_bytes();
  }
  return bytes;
}

// ---- Starting ----

absl::Status WorkerManager::HoldBack() {
  std::string running;
  for (const auto& [row, job] : table_.active()) {
    if (!HasWorker(job->state())) continue;
    absl::StrAppend(&running, running.empty() ? "" : ", ", job->name());
  }
  if (held_back_ || !running.empty()) {
    return Error(absl::StatusCode::kFailedPrecondition, reason::kDeviceBusy,
                 absl::StrCat(held_back_ ? "a device is being measured" : running + " runs",
                              ", and what is measured beside it would be too slow; try again "
                              "when that has ended"),
                 {{"job", running}});
  }
  held_back_ = true;
  return absl::OkStatus();
}

void WorkerManager::Release() {
  held_back_ = false;
  Dispatch();
}

void WorkerManager::Dispatch() {
  const bool measures = held_back_ && admission_ == Admission::kOpen;
  ScheduleDecision decision =
      Schedule(TakeScheduleSnapshot(table_, devices_,
                                    {.admission = measures ? Admission::kMeasures : admission_,
                                     .hold_message = hold_message_,
                                     .quotas = options_.quotas,
                                     .host_memory_bytes = options_.host_memory_bytes,
                                     .aging_seconds = options_.aging_seconds,
                                     .now = absl::Now()}));
  int64_t position = 0;
  for (Wait& wait : decision.waits) {
    ActiveJob* job = table_.Find(wait.name);
    ++position;
    if (job->queue_position == position && job->wait.reason == wait.reason &&
        job->wait.message == wait.message) {
      continue;
    }
    job->wait = std::move(wait);
    job->queue_position = position;
    table_.ShowLive(*job);
  }
  for (const Yield& yield : decision.yields) {
    // If it cannot be stored, the next call decides the same.
    (void)RequestStop(
        *table_.Find(yield.name), v1::JOB_STATE_YIELDING, v1::STATE_REASON_PREEMPTED,
        absl::StrCat("gave its place to ", yield.to, ", which has a higher priority"));
  }
  for (const Start& start : decision.starts) StartJob(*table_.Find(start.name), start.device);
  for (Wait& why : decision.dropouts) {
    ActiveJob& job = *table_.Find(why.name);  // before the name is moved away
    DropOut(job, std::move(why));
  }
}

void WorkerManager::DropOut(ActiveJob& job, Wait why) {
  v1::Job after = job.stored.job;
  after.set_state(v1::JOB_STATE_CANCELLED);
  after.set_state_reason(why.reason);
  after.set_state_message(std::move(why.message));
  *after.mutable_end_time() = TimeUtil::GetCurrentTime();
  if (absl::Status moved = table_.Move(job, std::move(after), job.stored.worker_deaths);
      !moved.ok()) {
    spdlog::error("{} cannot be cancelled: {}", why.name, std::string(moved.message()));
    return;
  }
  // Others may wait for this one.
  control_.Post([this] { Dispatch(); });
}

void WorkerManager::StartJob(ActiveJob& job, const std::string& device) {
  v1::Job after = job.stored.job;
  after.set_state(v1::JOB_STATE_STARTING);
  after.clear_state_reason();
  after.clear_state_message();
  after.clear_progress();
  after.set_attempt(after.attempt() + 1);
  after.set_device(device);
  after.clear_not_before();
  *after.mutable_attempt_start_time() = TimeUtil::GetCurrentTime();
  if (!after.has_start_time()) *after.mutable_start_time() = after.attempt_start_time();
  if (absl::Status moved = table_.Move(job, std::move(after), job.stored.worker_deaths);
      !moved.ok()) {
    spdlog::error("{} cannot start: {}", job.name(), std::string(moved.message()));
    control_.PostAfter(kStoreRetry, [this] { Dispatch(); });
    return;
  }
  job.queue_position = 0;
  FaultPoint("start.attempt_stored");
  absl::Status started = PrepareAttempt(job, device);
  FaultPoint("start.assignment_written");
  if (started.ok()) started = SpawnWorker(job, device);
  if (started.ok()) return;
  StartLaterOrGiveUp(job, Annotate(started, "the worker could not be started"));
}

void WorkerManager::StartLaterOrGiveUp(ActiveJob& job, const absl::Status& error) {
  if (MayPass(ReasonOf(error))) {
    StartLater(job, error);
  } else {
    GiveUp(job, error);
  }
}

void WorkerManager::StartLater(ActiveJob& job, const absl::Status& error) {
  spdlog::warn("{}: {}; it is tried again", job.name(), std::string(error.message()));
  if (job.worker && job.worker->process) job.worker->process->Kill();
  const std::string name = job.name();
  const absl::Status moved = PutBack(job, v1::STATE_REASON_BACK_OFF,
                                     ValidUtf8(std::string(error.message())), options_.start_retry);
  ActiveJob* const again = table_.Find(name);
  if (again != nullptr) again->worker.reset();
  if (moved.ok()) return;
  control_.PostAfter(kStoreRetry, [this, name, error] {
    if (ActiveJob* unfinished = table_.Find(name)) StartLater(*unfinished, error);
  });
}

absl::Status WorkerManager::PrepareAttempt(const ActiveJob& job, const std::string& device) {
  const v1::Job& stored = job.stored.job;
  PENSTOCK_RETURN_IF_ERROR(directory_.MakeAttempt(job.name(), stored.attempt()));
  internal::Assignment assignment;
  assignment.set_job(job.name());
  assignment.set_attempt(stored.attempt());
  if (stored.has_train()) {
    *assignment.mutable_train() = stored.train();
  } else {
    *assignment.mutable_export_()->mutable_spec() = stored.export_();
  }
  if (CheckUploadName(stored.train().start_checkpoint(), "start_checkpoint").ok()) {
    assignment.set_start_checkpoint_directory(directory_.Upload(stored.train().start_checkpoint()));
  }
  if (const std::optional<CheckpointName> read = CheckpointReadBy(stored)) {
    PENSTOCK_ASSIGN_OR_RETURN(const v1::Checkpoint checkpoint,
                              table_.store().GetCheckpoint(read->job, read->step));
    if (stored.has_train()) {
      assignment.set_start_checkpoint_directory(checkpoint.directory());
    } else {
      assignment.mutable_export_()->set_checkpoint_directory(checkpoint.directory());
    }
  }
  assignment.set_job_directory(directory_.Job(job.name()));
  assignment.set_token_cache_directory(directory_.TokenCache());
  assignment.set_daemon_socket(directory_.WorkerSocket());
  assignment.set_signing_key_path(directory_.SigningKey());
  assignment.set_confined(options_.confine);
  assignment.set_host_memory_bytes(job.host_bytes());
  assignment.set_device(device);
  const std::optional<v1::Device> known = devices_.Find(device);
  if (known && options_.profile_json) assignment.set_profile_json(options_.profile_json(*known));
  assignment.set_device_memory_bytes(stored.plan().device_bytes());
  return WriteFileDurably(directory_.Assignment(job.name(), stored.attempt()),
                          assignment.SerializeAsString());
}

absl::Status WorkerManager::SpawnWorker(ActiveJob& job, const std::string& device) {
  const int32_t attempt = job.stored.job.attempt();
  job.worker.emplace();
  job.worker->device = device;
  job.worker->oom_kills_before = OutOfMemoryKills();
  job.worker->pace.predicted_step_seconds = job.stored.job.plan().predicted_step_seconds();
  PENSTOCK_RETURN_IF_ERROR(reports_.Open(job));
  PENSTOCK_ASSIGN_OR_RETURN(
      job.worker->process,
      ProcessHandle::Spawn({.binary = options_.binary,
                            .assignment_path = directory_.Assignment(job.name(), attempt),
                            // A worker sees the GPU that its job has and no other.
                            .cuda_visible_devices = device == kCpuDevice ? "" : device,
                            .log_path = directory_.Log(job.name(), attempt)}));
  FaultPoint("start.worker_spawned");
  spdlog::info("{}: attempt {} is process {}", job.name(), attempt, job.worker->process->pid());
  return WatchWorker(job);
}

absl::Status WorkerManager::WatchWorker(ActiveJob& job) {
  return watcher_->Watch(
      *job.worker->process,
      [this, name = job.name(), attempt = job.stored.job.attempt()](ExitFacts exit) {
        control_.Post([this, name, attempt, exit] { OnWorkerEnd(name, attempt, exit); });
      });
}

void WorkerManager::GiveUp(ActiveJob& job, const absl::Status& error) {
  spdlog::error("{}: {}", job.name(), std::string(error.message()));
  if (job.worker && job.worker->process) job.worker->process->Kill();
  v1::Job after = job.stored.job;
  after.set_state(v1::JOB_STATE_FAILED);
  *after.mutable_error() = ToRpcStatus(error);
  after.set_state_message(after.error().message());
  after.set_failure_class(ClassifyFailure(after.error()));
  *after.mutable_end_time() = TimeUtil::GetCurrentTime();
  if (job.state() == v1::JOB_STATE_CANCELLING) after.set_state(v1::JOB_STATE_CANCELLED);
  if (absl::Status moved = table_.Move(job, std::move(after), job.stored.worker_deaths);
      !moved.ok()) {
    const std::string name = job.name();
    control_.PostAfter(kStoreRetry, [this, name, error] {
      if (ActiveJob* again = table_.Find(name)) GiveUp(*again, error);
    });
    return;
  }
  control_.Post([this] { Dispatch(); });
}

// ---- Stopping ----

absl::Status WorkerManager::RequestStop(ActiveJob& job, v1::JobState to, v1::StateReason reason,
                                        const std::string& message) {
  v1::Job after = job.stored.job;
  after.set_state(to);
  after.set_state_reason(reason);
  after.set_state_message(message);
  absl::Status moved = table_.Move(job, std::move(after), job.stored.worker_deaths);
  if (!moved.ok()) {
    spdlog::error("{} cannot be asked to stop: {}", job.name(), std::string(moved.message()));
  }
  return moved;
}

void WorkerManager::Drain(OnDrain running) {
  admission_ = Admission::kDraining;
  if (running == OnDrain::kSave) {
    for (const auto& [row, job] : table_.active()) {
      if (!CanMove(job->state(), v1::JOB_STATE_YIELDING)) continue;
      (void)RequestStop(*job, v1::JOB_STATE_YIELDING, v1::STATE_REASON_DAEMON_STOPPED,
                        "penstockd was stopped; the job goes on when it is started again");
    }
  }
  Dispatch();
}

void WorkerManager::SetAdminHold(AdminHold hold, const std::string& message) {
  if (admission_ == Admission::kDraining) return;
  admission_ = hold == AdminHold::kHold ? Admission::kHeld : Admission::kOpen;
  hold_message_ = message;
  Dispatch();
}

void WorkerManager::EnforceTimeLimits() {
  for (const auto& [row, active] : table_.active()) {
    const v1::Job& job = active->stored.job;
    const int64_t limit = job.train().limits().run_seconds();
    if (limit == 0 || !HasWorker(job.state()) || IsStopping(job.state())) continue;
    const auto attempt = TimeUtil::GetCurrentTime() - job.attempt_start_time();
    const double seconds = static_cast<double>(TimeUtil::DurationToMilliseconds(attempt)) / 1000;
    if (job.run_seconds() + seconds < static_cast<double>(limit)) continue;
    (void)RequestStop(*active, v1::JOB_STATE_CANCELLING, v1::STATE_REASON_TIME_LIMIT,
                      absl::StrCat("it has run for ", limit,
                                   " s (limits.run_seconds); its last finished step is saved"));
  }
}

// ---- Ending ----

void WorkerManager::OnWorkerEnd(const std::string& name, int32_t attempt, ExitFacts exit) {
  ActiveJob* job = table_.Find(name);
  if (job == nullptr || !job->worker || job->stored.job.attempt() != attempt) return;
  if (absl::Status ended = ends_.End(*job, exit); !ended.ok()) {
    spdlog::error("{}: cannot store the end of attempt {}: {}", name, attempt,
                  std::string(ended.message()));
    control_.PostAfter(kStoreRetry,
                       [this, name, attempt, exit] { OnWorkerEnd(name, attempt, exit); });
    return;
  }
  Dispatch();
}

void WorkerManager::OnDeviceLost(const v1::Device& device) {
  for (const auto& [row, job] : table_.active()) {
    if (job->worker && job->worker->device == device.id())
      ends_.TellDeviceChange(job->name(), device);
  }
  Dispatch();  // Those that wait for it shall say why.
}

void WorkerManager::Tick() {
  const auto now = RunningWorker::Clock::now();
  for (const auto& [row, job] : table_.active()) {
    if (!job->worker || !job->worker->process) continue;
    RunningWorker& worker = *job->worker;
    if (worker.kill_cause != KillCause::kNone) continue;
    if (IsStopping(job->state()) && !worker.stop_time) worker.stop_time = now;
    const auto kill = WhyKill(*job, options_, now);
    if (!kill) continue;
    worker.kill_cause = kill->cause;
    worker.kill_seconds = kill->seconds;
    spdlog::warn("{}: killing process {}, which {}", job->name(), worker.process->pid(),
                 kill->words);
    worker.process->Kill();
  }
  EnforceTimeLimits();
  if (table_.CountInState(v1::JOB_STATE_QUEUED) > 0) Dispatch();
}

// ---- After a restart ----

void WorkerManager::Recover() {
  // Names first: moves change the table.
  std::vector<std::string> names;
  for (const auto& [row, job] : table_.active()) names.push_back(job->name());
  for (const std::string& name : names) {
    ActiveJob& job = *table_.Find(name);
    // One job's damaged files must not keep the daemon and all other jobs down.
    if (const absl::Status recovered = RecoverJob(job); !recovered.ok()) {
      StartLaterOrGiveUp(job, Annotate(recovered, "cannot go on with the attempt after a restart"));
    }
  }
}

absl::Status WorkerManager::RecoverJob(ActiveJob& job) {
  const int32_t attempt = job.stored.job.attempt();
  if (attempt == 0) return absl::OkStatus();  // It never left the queue.
  PENSTOCK_ASSIGN_OR_RETURN(WorkerLockView view,
                            ExamineWorkerLock(directory_.WorkerLock(job.name()), attempt));
  PENSTOCK_ASSIGN_OR_RETURN(const bool has_outcome, ends_.HasOutcome(job.name(), attempt));
  const ReconcileDecision decision = Reconcile({.state = job.state(),
                                                .lock = view.facts,
                                                .worker_started = view.started,
                                                .has_outcome = has_outcome});
  if (decision.kill_holder && view.holder) {
    spdlog::warn("{}: killing process {} of an older attempt", job.name(), view.holder->pid());
    view.holder->Kill();
    view.holder->WaitForEnd(10'000);
  }
  switch (decision.action) {
    case ReconcileAction::kStay:
      return absl::OkStatus();
    case ReconcileAction::kAdopt:
      return Adopt(job, *std::move(view.holder));
    case ReconcileAction::kNeverRan:
      return PutBack(job, v1::STATE_REASON_DAEMON_RESTART,
                     "penstockd ended before it had started the worker", {});
    case ReconcileAction::kEnd:
      job.worker.emplace();
      PENSTOCK_RETURN_IF_ERROR(reports_.Open(job));
      return ends_.End(job, {});
  }
  return absl::OkStatus();
}

absl::Status WorkerManager::Adopt(ActiveJob& job, ProcessHandle process) {
  spdlog::info("{}: adopted process {}, attempt {}", job.name(), process.pid(),
               job.stored.job.attempt());
  // First of all: who gives the attempt up ends the process.
  job.worker.emplace();
  job.worker->process = std::move(process);
  internal::Assignment assignment;
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::string bytes,
      ReadSmallFile(directory_.Assignment(job.name(), job.stored.job.attempt()),
                    kMaxAssignmentBytes));
  assignment.ParseFromString(bytes);
  job.worker->device = assignment.device();
  job.worker->oom_kills_before = OutOfMemoryKills();
  job.worker->pace.predicted_step_seconds = job.stored.job.plan().predicted_step_seconds();
  PENSTOCK_RETURN_IF_ERROR(reports_.Open(job));
  return WatchWorker(job);
}

absl::Status WorkerManager::PutBack(ActiveJob& job, v1::StateReason reason,
                                    const std::string& message, std::chrono::milliseconds pause) {
  if (IsStopping(job.state())) {
    // It never ran, so it has stopped.
    job.worker.emplace();
    job.worker->outcome.emplace().set_result(internal::ATTEMPT_RESULT_STOPPED);
    return ends_.End(job, {});
  }
  v1::Job after = job.stored.job;
  after.clear_progress();
  after.set_state(v1::JOB_STATE_QUEUED);
  after.set_state_reason(reason);
  after.set_state_message(message);
  if (pause.count() > 0) {
    *after.mutable_not_before() =
        TimeUtil::GetCurrentTime() + TimeUtil::MillisecondsToDuration(pause.count());
  }
  return table_.Move(job, std::move(after), job.stored.worker_deaths);
}

}  // namespace penstock::server
