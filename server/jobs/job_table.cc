#include "server/jobs/job_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/store/job_state.h"

namespace penstock::server {

absl::Status JobTable::Load() {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<StoredJob> jobs, store_.UnfinishedJobs());
  for (StoredJob& stored : jobs) Add(std::move(stored));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<EndedDeviceUse> uses, store_.DeviceUses());
  for (const EndedDeviceUse& use : uses) Count(use);
  return absl::OkStatus();
}

void JobTable::Count(const EndedDeviceUse& use) {
  device_use_.Add({.owner = use.owner, .kind = use.kind}, absl::FromUnixMillis(use.end_unix_ms),
                  static_cast<double>(use.ms) / 1000);
}

void JobTable::Add(StoredJob stored) {
  auto job = std::make_unique<ActiveJob>();
  job->lane = stored.job.has_export_() ? Lane::kExport : Lane::kDevice;
  job->stored = std::move(stored);
  by_name_[job->name()] = job.get();
  active_[job->stored.row] = std::move(job);
}

DeviceNeed ActiveJob::device_need() const {
  const v1::Job& job = stored.job;
  DeviceNeed need;
  if (job.train().device().kind() == v1::DEVICE_CHOICE_CUDA) need.kind = v1::DEVICE_KIND_CUDA;
  need.uuid = job.train().device().uuid();
  need.bytes = job.plan().device_bytes();
  need.failed.assign(job.failed_devices().begin(), job.failed_devices().end());
  return need;
}

ActiveJob* JobTable::Find(const std::string& name) {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

int64_t JobTable::CountInState(v1::JobState state) const {
  return std::count_if(active_.begin(), active_.end(),
                       [&](const auto& entry) { return entry.second->state() == state; });
}

int64_t JobTable::CountWithWorker() const {
  return std::count_if(active_.begin(), active_.end(),
                       [](const auto& entry) { return HasWorker(entry.second->state()); });
}

LivePart ActiveJob::live() const {
  LivePart live{
      .queue_position = queue_position, .wait_reason = wait.reason, .wait_message = wait.message};
  if (stored.job.has_progress()) live.progress = stored.job.progress();
  return live;
}

v1::Job JobTable::Live(StoredJob stored) const {
  const auto found = active_.find(stored.row);
  if (found == active_.end()) return std::move(stored.job);
  AddLivePart(found->second->live(), stored.job);
  return std::move(stored.job);
}

absl::Status JobTable::Insert(const std::vector<v1::Job>& jobs, const RequestRecord* request) {
  PENSTOCK_RETURN_IF_ERROR(store_.InsertJobs(jobs, request));
  for (const v1::Job& job : jobs) {
    PENSTOCK_ASSIGN_OR_RETURN(StoredJob stored, store_.GetJob(job.name()));
    Add(std::move(stored));
    hub_.Publish(job.name(), Topic::kEvents);
  }
  return absl::OkStatus();
}

absl::Status JobTable::Reopen(v1::JobState from, const v1::Job& after,
                              const RequestRecord* request) {
  PENSTOCK_RETURN_IF_ERROR(store_.MoveJob(from, after, /*worker_deaths=*/0, request));
  PENSTOCK_ASSIGN_OR_RETURN(StoredJob stored, store_.GetJob(after.name()));
  Add(std::move(stored));
  hub_.Publish(after.name(), Topic::kEvents);
  return absl::OkStatus();
}

absl::Status JobTable::Move(ActiveJob& job, v1::Job after, int32_t worker_deaths,
                            const RequestRecord* request) {
  PENSTOCK_RETURN_IF_ERROR(store_.MoveJob(job.state(), after, worker_deaths, request));
  if (const auto use = DeviceUseThatEnds(job.stored.job, after)) Count(*use);
  const std::string name = job.name();
  if (IsFinal(after.state())) {
    by_name_.erase(name);
    active_.erase(job.stored.row);
    if (end_listener_) end_listener_(after);
  } else {
    job.stored.job = std::move(after);
    job.stored.worker_deaths = worker_deaths;
    ShowLive(job);
  }
  hub_.Publish(name, Topic::kEvents);
  return absl::OkStatus();
}

}  // namespace penstock::server
