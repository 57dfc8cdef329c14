#include "server/jobs/worker_manager.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/engine.h"
#include "google/protobuf/util/time_util.h"
#include "server/jobs/checkpoint_readers.h"
#include "server/jobs/worker_lock.h"
#include "server/rpc/grpc_status.h"
#include "server/store/job_state.h"
#include "server/store/log_file.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
namespace fs = std::filesystem;
using google::protobuf::util::TimeUtil;
namespace {

constexpr int kLastLogLines = 20;
constexpr std::string_view kCpuDevice = "cpu";
constexpr int64_t kMaxOutcomeBytes = 4 << 20;
constexpr std::chrono::milliseconds kStoreRetry{1000};

int32_t MaxAttempts(const v1::Job& job) {
  return job.has_train() ? std::max(1, job.train().limits().max_attempts()) : 1;
}

std::optional<internal::AttemptOutcome> ReadOutcome(const std::string& path) {
  const absl::StatusOr<std::string> bytes = ReadSmallFile(path, kMaxOutcomeBytes);
  internal::AttemptOutcome outcome;
  if (!bytes.ok() || !outcome.ParseFromString(*bytes)) return std::nullopt;
  return outcome;
}

int64_t DirectoryBytes(const fs::path& path) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) bytes += static_cast<int64_t>(it->file_size(ignored));
  }
  return bytes;
}

// Steps for which there is a finished directory; unfinished ones have other names.
std::set<int64_t> CheckpointSteps(const std::string& directory) {
  std::set<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    int64_t step = 0;
    if (absl::SimpleAtoi(name, &step) && step >= 0 && absl::StrCat(step) == name) {
      steps.insert(step);
    }
  }
  return steps;
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
      control_(control),
      watcher_(std::move(watcher)) {}

void WorkerManager::Drain() {
  admission_ = Admission::kDraining;
  Dispatch();
}

int64_t WorkerManager::reserved_bytes() const {
  int64_t bytes = 0;
  for (const auto& [row, job] : table_.active()) {
    if (HasWorker(job->state())) bytes += job->host_bytes();
  }
  return bytes;
}

// ---- Starting ----

std::vector<ScheduleDevice> WorkerManager::ScheduleDevices() const {
  std::vector<ScheduleDevice> devices;
  for (const v1::Device& device : devices_.List()) {
    const int64_t bytes = std::max<int64_t>(0, device.memory_bytes() - kDeviceReserveBytes);
    devices.push_back({.id = device.id(),
                       .kind = device.kind(),
                       .job_bytes = device.kind() == v1::DEVICE_KIND_CUDA ? bytes : 0,
                       .health = device.health(),
                       .health_message = device.health_message()});
  }
  return devices;
}

ScheduleSnapshot WorkerManager::Snapshot() {
  ScheduleSnapshot snapshot{.admission = admission_,
                            .devices = ScheduleDevices(),
                            .host_memory_bytes = options_.host_memory_bytes,
                            .running = {},
                            .queued = {}};
  for (const auto& [row, job] : table_.active()) {
    if (job->state() == v1::JOB_STATE_QUEUED) {
      snapshot.queued.push_back({.name = job->name(),
                                 .lane = job->lane,
                                 .host_bytes = job->host_bytes(),
                                 .device = job->device_need()});
    } else {
      snapshot.running.push_back({.name = job->name(),
                                  .lane = job->lane,
                                  .device = job->worker ? job->worker->device : "",
                                  .host_bytes = job->host_bytes()});
    }
  }
  return snapshot;
}

absl::Status WorkerManager::HoldBack() {
  std::string running;
  for (const auto& [row, job] : table_.active()) {
    if (job->state() == v1::JOB_STATE_QUEUED) continue;
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
  if (held_back_) return;
  ScheduleDecision decision = Schedule(Snapshot());
  int64_t position = 0;
  for (Wait& wait : decision.waits) {
    ActiveJob* job = table_.Find(wait.name);
    job->wait = std::move(wait);
    job->queue_position = ++position;
  }
  for (const Start& start : decision.starts) StartJob(*table_.Find(start.name), start.device);
}

void WorkerManager::StartJob(ActiveJob& job, const std::string& device) {
  v1::Job after = job.stored.job;
  after.set_state(v1::JOB_STATE_STARTING);
  after.clear_state_reason();
  after.clear_state_message();
  after.clear_progress();
  after.set_attempt(after.attempt() + 1);
  after.set_device(device);
  if (!after.has_start_time()) *after.mutable_start_time() = TimeUtil::GetCurrentTime();
  if (absl::Status moved = table_.Move(job, std::move(after), job.stored.worker_deaths);
      !moved.ok()) {
    spdlog::error("{} cannot start: {}", job.name(), std::string(moved.message()));
    control_.PostAfter(kStoreRetry, [this] { Dispatch(); });
    return;
  }
  job.queue_position = 0;
  absl::Status started = PrepareAttempt(job, device);
  if (started.ok()) started = SpawnWorker(job, device);
  if (!started.ok()) GiveUp(job, Annotate(started, "the worker could not be started"));
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
  PENSTOCK_RETURN_IF_ERROR(reports_.Open(job));
  PENSTOCK_ASSIGN_OR_RETURN(
      job.worker->process,
      ProcessHandle::Spawn({.binary = options_.binary,
                            .assignment_path = directory_.Assignment(job.name(), attempt),
                            // A worker sees the GPU that its job has and no other.
                            .cuda_visible_devices = device == kCpuDevice ? "" : device,
                            .log_path = directory_.Log(job.name(), attempt)}));
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

// ---- Ending ----

void WorkerManager::OnWorkerEnd(const std::string& name, int32_t attempt, ExitFacts exit) {
  ActiveJob* job = table_.Find(name);
  if (job == nullptr || !job->worker || job->stored.job.attempt() != attempt) return;
  if (absl::Status ended = EndAttempt(*job, exit); !ended.ok()) {
    spdlog::error("{}: cannot store the end of attempt {}: {}", name, attempt,
                  std::string(ended.message()));
    control_.PostAfter(kStoreRetry,
                       [this, name, attempt, exit] { OnWorkerEnd(name, attempt, exit); });
    return;
  }
  Dispatch();
}

WorkerEnd WorkerManager::DescribeEnd(const ActiveJob& job, ExitFacts exit) const {
  WorkerEnd end{.state = job.state(),
                .max_attempts = MaxAttempts(job.stored.job),
                .worker_deaths = job.stored.worker_deaths,
                .outcome = {},
                .exit = exit};
  end.last_death = job.stored.job.last_worker_death();
  end.step = job.stored.job.progress().step();
  end.device = job.stored.job.device();
  DeviceNeed need = job.device_need();
  end.failed_devices = need.failed;
  need.failed.push_back(end.device);
  for (const ScheduleDevice& device : ScheduleDevices()) {
    end.has_other_device = end.has_other_device || CanRunOn(need, device);
  }
  end.silence_seconds = std::chrono::duration_cast<std::chrono::seconds>(options_.silence).count();
  if (job.worker) {
    end.step = std::max(end.step, job.worker->last_step);
    end.outcome = job.worker->outcome;
    end.kill_cause = job.worker->kill_cause;
    end.out_of_memory_kill = OutOfMemoryKills() > job.worker->oom_kills_before;
  }
  if (!end.outcome) {
    end.outcome = ReadOutcome(directory_.Outcome(job.name(), job.stored.job.attempt()));
  }
  return end;
}

absl::Status WorkerManager::EndAttempt(ActiveJob& job, ExitFacts exit) {
  if (job.worker && job.worker->metrics) PENSTOCK_RETURN_IF_ERROR(reports_.TakeJournal(job));
  PENSTOCK_RETURN_IF_ERROR(SyncCheckpoints(job));
  PENSTOCK_ASSIGN_OR_RETURN(const auto checkpoints,
                            table_.store().ListCheckpoints(job.name(), -1, INT64_MAX));
  WorkerEnd end = DescribeEnd(job, exit);
  for (const v1::Checkpoint& checkpoint : checkpoints) {
    end.saved_checkpoint |= checkpoint.attempt() == job.stored.job.attempt();
  }
  const EndDecision decision = AfterWorkerEnd(end);
  const int32_t attempt = job.stored.job.attempt();
  if (!decision.quarantine.empty()) {
    // Before the job's last event, which ends the streams of those who watch it.
    const auto device = devices_.Quarantine(end.device, decision.quarantine);
    if (device) TellDeviceChange(job.name(), *device);
  }

  v1::Job after = job.stored.job;
  after.set_state(decision.state);
  after.set_state_reason(decision.reason);
  after.set_state_message(ValidUtf8(decision.message));
  after.clear_error();
  after.clear_last_log_lines();
  after.clear_artifacts();
  if (decision.error.code() != 0) *after.mutable_error() = decision.error;
  after.set_failure_class(decision.failure_class);
  if (decision.device_failed) after.add_failed_devices(end.device);
  if (decision.worker_died) {
    v1::WorkerDeath& death = *after.mutable_last_worker_death();
    death.set_attempt(attempt);
    death.set_step(end.step);
    death.set_cause(ValidUtf8(DescribeExit(end)));
  }
  if (decision.worker_died || decision.device_failed || decision.state == v1::JOB_STATE_FAILED) {
    for (std::string& line : LastLogLines(directory_.Log(job.name(), attempt), kLastLogLines)) {
      after.add_last_log_lines(std::move(line));
    }
  }
  if (IsFinal(decision.state)) {
    *after.mutable_end_time() = TimeUtil::GetCurrentTime();
    for (const v1::Checkpoint& checkpoint : checkpoints) after.add_artifacts(checkpoint.name());
    if (end.outcome) after.mutable_artifacts()->MergeFrom(end.outcome->artifacts());
  }
  const std::string name = job.name();
  PENSTOCK_RETURN_IF_ERROR(table_.Move(job, std::move(after), decision.worker_deaths));
  spdlog::info("{}: attempt {} ended, now {} {}", name, attempt, StateName(decision.state),
               decision.message);
  if (ActiveJob* queued = table_.Find(name)) queued->worker.reset();
  return absl::OkStatus();
}

absl::Status WorkerManager::SyncCheckpoints(const ActiveJob& job) {
  JobStore& store = table_.store();
  std::set<int64_t> on_disk = CheckpointSteps(directory_.Checkpoints(job.name()));
  PENSTOCK_ASSIGN_OR_RETURN(const auto listed, store.ListCheckpoints(job.name(), -1, INT64_MAX));
  const int32_t attempt = job.stored.job.attempt();
  for (const v1::Checkpoint& checkpoint : listed) {
    std::error_code error;
    if (!fs::is_directory(checkpoint.directory(), error)) {
      PENSTOCK_RETURN_IF_ERROR(
          store.RemoveCheckpoint(job.name(), attempt, /*number=*/0, checkpoint.step()));
    }
    on_disk.erase(checkpoint.step());
  }
  for (const int64_t step : on_disk) {
    v1::Checkpoint checkpoint;
    checkpoint.set_name(absl::StrCat(job.name(), "/checkpoints/", step));
    checkpoint.set_step(step);
    checkpoint.set_directory(absl::StrCat(directory_.Checkpoints(job.name()), "/", step));
    checkpoint.set_bytes(DirectoryBytes(checkpoint.directory()));
    checkpoint.set_attempt(attempt);
    *checkpoint.mutable_create_time() = TimeUtil::GetCurrentTime();
    PENSTOCK_RETURN_IF_ERROR(store.AddCheckpoint(job.name(), attempt, /*number=*/0, checkpoint));
  }
  return absl::OkStatus();
}

void WorkerManager::TellDeviceChange(const std::string& job, const v1::Device& device) {
  if (absl::Status added = table_.store().AddDeviceEvent(job, device); !added.ok()) {
    spdlog::error("{}: the event that {} is in quarantine is lost: {}", job, device.id(),
                  std::string(added.message()));
  }
  table_.hub().Publish(job, Topic::kEvents);
}

void WorkerManager::OnDeviceLost(const v1::Device& device) {
  for (const auto& [row, job] : table_.active()) {
    if (job->worker && job->worker->device == device.id()) TellDeviceChange(job->name(), device);
  }
  Dispatch();  // Those that wait for it shall say why.
}

void WorkerManager::Tick() {
  const auto now = RunningWorker::Clock::now();
  for (const auto& [row, job] : table_.active()) {
    if (!job->worker || !job->worker->process) continue;
    RunningWorker& worker = *job->worker;
    if (worker.kill_cause != KillCause::kNone) continue;
    if (worker.outcome && now - worker.outcome_time > options_.linger) {
      worker.kill_cause = KillCause::kLingered;
    } else if (now - worker.last_report > options_.silence) {
      worker.kill_cause = KillCause::kSilence;
    } else {
      continue;
    }
    spdlog::warn("{}: killing process {}, which {}", job->name(), worker.process->pid(),
                 worker.kill_cause == KillCause::kSilence ? "is silent" : "does not exit");
    worker.process->Kill();
  }
}

// ---- After a restart ----

void WorkerManager::Recover() {
  // Names first: moves change the table.
  std::vector<std::string> names;
  for (const auto& [row, job] : table_.active()) names.push_back(job->name());
  for (const std::string& name : names) {
    ActiveJob& job = *table_.Find(name);
    // One job's damaged files must not keep the daemon and all other jobs down.
    if (absl::Status recovered = RecoverJob(job); !recovered.ok()) {
      GiveUp(job, Annotate(recovered, "cannot go on with the job after a restart"));
    }
  }
}

absl::Status WorkerManager::RecoverJob(ActiveJob& job) {
  const int32_t attempt = job.stored.job.attempt();
  if (attempt == 0) return absl::OkStatus();  // It never left the queue.
  PENSTOCK_ASSIGN_OR_RETURN(WorkerLockView view,
                            ExamineWorkerLock(directory_.WorkerLock(job.name()), attempt));
  PENSTOCK_ASSIGN_OR_RETURN(const StoredAttempt stored,
                            table_.store().GetAttempt(job.name(), attempt));
  const ReconcileDecision decision =
      Reconcile({.state = job.state(),
                 .lock = view.facts,
                 .worker_started = view.started,
                 .has_outcome = stored.outcome.has_value() ||
                                ReadOutcome(directory_.Outcome(job.name(), attempt)).has_value()});
  if (decision.kill_holder && view.holder) {
    spdlog::warn("{}: killing process {} of an older attempt", job.name(), view.holder->pid());
    view.holder->Kill();
    view.holder->WaitForEnd(10'000);
  }
  switch (decision.action) {
    case ReconcileAction::kStayQueued:
      return absl::OkStatus();
    case ReconcileAction::kAdopt:
      return Adopt(job, *std::move(view.holder));
    case ReconcileAction::kNeverRan:
      return PutBack(job);
    case ReconcileAction::kEnd:
      job.worker.emplace();
      PENSTOCK_RETURN_IF_ERROR(reports_.Open(job));
      return EndAttempt(job, {});
  }
  return absl::OkStatus();
}

absl::Status WorkerManager::Adopt(ActiveJob& job, ProcessHandle process) {
  spdlog::info("{}: adopted process {}, attempt {}", job.name(), process.pid(),
               job.stored.job.attempt());
  internal::Assignment assignment;
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::string bytes,
      ReadSmallFile(directory_.Assignment(job.name(), job.stored.job.attempt()), kMaxOutcomeBytes));
  assignment.ParseFromString(bytes);
  job.worker.emplace();
  job.worker->device = assignment.device();
  job.worker->oom_kills_before = OutOfMemoryKills();
  job.worker->process = std::move(process);
  PENSTOCK_RETURN_IF_ERROR(reports_.Open(job));
  return WatchWorker(job);
}

absl::Status WorkerManager::PutBack(ActiveJob& job) {
  v1::Job after = job.stored.job;
  after.clear_progress();
  if (job.state() == v1::JOB_STATE_CANCELLING) {
    after.set_state(v1::JOB_STATE_CANCELLED);
    after.set_state_reason(v1::STATE_REASON_CANCEL_REQUESTED);
    *after.mutable_end_time() = TimeUtil::GetCurrentTime();
  } else {
    after.set_state(v1::JOB_STATE_QUEUED);
    after.set_state_reason(v1::STATE_REASON_DAEMON_RESTART);
    after.set_state_message("penstockd ended before it had started the worker");
  }
  return table_.Move(job, std::move(after), job.stored.worker_deaths);
}

}  // namespace penstock::server
