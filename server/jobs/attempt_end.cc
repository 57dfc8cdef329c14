#include "server/jobs/attempt_end.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "google/protobuf/util/time_util.h"
#include "server/fault/fault_point.h"
#include "server/jobs/schedule_snapshot.h"
#include "server/store/job_state.h"
#include "server/store/log_file.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
namespace fs = std::filesystem;
using google::protobuf::util::TimeUtil;
namespace {

constexpr int kLastLogLines = 20;
constexpr int64_t kMaxOutcomeBytes = 4 << 20;

constexpr int32_t kExportAttempts = 3;

int32_t MaxAttempts(const v1::Job& job) {
  return job.has_train() ? std::max(1, job.train().limits().max_attempts()) : kExportAttempts;
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

// Of the attempt that ends now. A clock that was set back does not count.
double SecondsOfAttempt(const v1::Job& job) {
  const auto time = TimeUtil::GetCurrentTime() - job.attempt_start_time();
  return std::max(0.0, static_cast<double>(TimeUtil::DurationToMilliseconds(time)) / 1000);
}

}  // namespace

absl::StatusOr<bool> AttemptEnds::HasOutcome(const std::string& job, int32_t attempt) const {
  PENSTOCK_ASSIGN_OR_RETURN(const StoredAttempt stored, table_.store().GetAttempt(job, attempt));
  return stored.outcome.has_value() || ReadOutcome(directory_.Outcome(job, attempt)).has_value();
}

WorkerEnd AttemptEnds::Describe(const ActiveJob& job, ExitFacts exit) const {
  const v1::Job& stored = job.stored.job;
  WorkerEnd end{.state = job.state(),
                .state_reason = stored.state_reason(),
                .state_message = stored.state_message(),
                .max_attempts = MaxAttempts(stored),
                .worker_deaths = job.stored.worker_deaths,
                .outcome = {},
                .exit = exit};
  end.last_death = stored.last_worker_death();
  end.step = stored.progress().step();
  end.device = stored.device();
  DeviceNeed need = job.device_need();
  end.failed_devices = need.failed;
  need.failed.push_back(end.device);
  for (const ScheduleDevice& device : ScheduleDevices(devices_)) {
    end.has_other_device = end.has_other_device || CanRunOn(need, device);
  }
  if (job.worker) {
    end.step = std::max(end.step, job.worker->last_step);
    end.outcome = job.worker->outcome;
    end.kill_cause = job.worker->kill_cause;
    end.kill_seconds = job.worker->kill_seconds;
    end.out_of_memory_kill = OutOfMemoryKills() > job.worker->oom_kills_before;
  }
  if (!end.outcome) end.outcome = ReadOutcome(directory_.Outcome(job.name(), stored.attempt()));
  return end;
}

v1::Job AttemptEnds::After(const ActiveJob& job, const WorkerEnd& end,
                           const EndDecision& decision) const {
  v1::Job after = job.stored.job;
  const int32_t attempt = after.attempt();
  after.set_state(decision.state);
  after.set_state_reason(decision.reason);
  after.set_state_message(ValidUtf8(decision.message));
  after.clear_error();
  after.clear_last_log_lines();
  after.clear_artifacts();
  after.set_run_seconds(after.run_seconds() + SecondsOfAttempt(after));
  if (decision.error.code() != 0) *after.mutable_error() = decision.error;
  after.set_failure_class(decision.failure_class);
  if (decision.device_failed) after.add_failed_devices(end.device);
  const bool died = !decision.death_cause.empty();
  if (died) {
    v1::WorkerDeath& death = *after.mutable_last_worker_death();
    death.set_attempt(attempt);
    death.set_step(end.step);
    death.set_cause(ValidUtf8(decision.death_cause));
  }
  if (died || decision.device_failed || decision.state == v1::JOB_STATE_FAILED) {
    for (std::string& line : LastLogLines(directory_.Log(job.name(), attempt), kLastLogLines)) {
      after.add_last_log_lines(std::move(line));
    }
  }
  const auto now = TimeUtil::GetCurrentTime();
  if (decision.state == v1::JOB_STATE_QUEUED) {
    int64_t pause = decision.pause_seconds;
    if (decision.reason == v1::STATE_REASON_PREEMPTED) {
      after.set_preemptions(after.preemptions() + 1);
      pause = PreemptionPauseSeconds(after.preemptions());
    }
    *after.mutable_queue_time() = now;
    if (pause > 0) *after.mutable_not_before() = now + TimeUtil::SecondsToDuration(pause);
  }
  if (IsFinal(decision.state)) *after.mutable_end_time() = now;
  return after;
}

absl::Status AttemptEnds::End(ActiveJob& job, ExitFacts exit) {
  if (job.worker && job.worker->metrics) PENSTOCK_RETURN_IF_ERROR(reports_.TakeJournal(job));
  PENSTOCK_RETURN_IF_ERROR(SyncCheckpoints(job));
  PENSTOCK_ASSIGN_OR_RETURN(const auto checkpoints,
                            table_.store().ListCheckpoints(job.name(), -1, INT64_MAX));
  WorkerEnd end = Describe(job, exit);
  for (const v1::Checkpoint& checkpoint : checkpoints) {
    end.saved_checkpoint |= checkpoint.attempt() == job.stored.job.attempt();
  }
  const EndDecision decision = AfterWorkerEnd(end);
  if (!decision.quarantine.empty()) {
    // Before the job's last event, which ends the streams of those who watch it.
    const auto device = devices_.Quarantine(end.device, decision.quarantine);
    if (device) TellDeviceChange(job.name(), *device);
  }
  v1::Job after = After(job, end, decision);
  if (IsFinal(decision.state)) {
    for (const v1::Checkpoint& checkpoint : checkpoints) after.add_artifacts(checkpoint.name());
    if (end.outcome) after.mutable_artifacts()->MergeFrom(end.outcome->artifacts());
  }
  FaultPoint("end.before_move");
  const std::string name = job.name();
  const int32_t attempt = after.attempt();
  PENSTOCK_RETURN_IF_ERROR(table_.Move(job, std::move(after), decision.worker_deaths));
  spdlog::info("{}: attempt {} ended, now {} {}", name, attempt, StateName(decision.state),
               decision.message);
  if (ActiveJob* unfinished = table_.Find(name)) unfinished->worker.reset();
  return absl::OkStatus();
}

absl::Status AttemptEnds::SyncCheckpoints(const ActiveJob& job) {
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

void AttemptEnds::TellDeviceChange(const std::string& job, const v1::Device& device) {
  if (absl::Status added = table_.store().AddDeviceEvent(job, device); !added.ok()) {
    spdlog::error("{}: the event that {} is in quarantine is lost: {}", job, device.id(),
                  std::string(added.message()));
  }
  table_.hub().Publish(job, Topic::kEvents);
}

}  // namespace penstock::server
