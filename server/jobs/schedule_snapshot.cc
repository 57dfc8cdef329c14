#include "server/jobs/schedule_snapshot.h"

#include <algorithm>

#include "engine/engine.h"
#include "server/jobs/run_time.h"
#include "server/store/job_state.h"

namespace penstock::server {
namespace {

v1::Priority PriorityOf(const v1::Job& job) {
  const v1::Priority priority = job.train().queue().priority();
  return priority == v1::PRIORITY_UNSPECIFIED ? v1::PRIORITY_NORMAL : priority;
}

// Once a job has started, what it waited for has come.
std::vector<ParentJob> ParentsOf(const v1::Job& job, JobTable& table) {
  std::vector<ParentJob> parents;
  if (job.attempt() > 0) return parents;
  for (const std::string& name : job.train().queue().after()) {
    const absl::StatusOr<v1::Job> parent = table.Get(name);
    // It cannot be deleted while a job waits for it.
    parents.push_back({name, parent.ok() ? parent->state() : v1::JOB_STATE_FAILED});
  }
  return parents;
}

v1::DeviceKind KindOf(const v1::Job& job) {
  return job.train().device().kind() == v1::DEVICE_CHOICE_CUDA ? v1::DEVICE_KIND_CUDA
                                                               : v1::DEVICE_KIND_CPU;
}

QueuedJob Describe(const ActiveJob& active, JobTable& table, absl::Time now) {
  const v1::Job& job = active.stored.job;
  const v1::QueueSpec& queue = job.train().queue();
  QueuedJob queued{.name = job.name(),
                   .owner = job.owner(),
                   .lane = active.lane,
                   .host_bytes = active.host_bytes(),
                   .device = active.device_need(),
                   .priority = PriorityOf(job)};
  queued.waited_seconds = absl::ToInt64Seconds(now - ToTime(job.queue_time()));
  if (job.has_not_before()) {
    queued.back_off_seconds =
        absl::ToInt64Seconds(absl::Ceil(ToTime(job.not_before()) - now, absl::Seconds(1)));
  }
  queued.seconds = LongestRunSeconds(job);
  queued.parents = ParentsOf(job, table);
  queued.after_rule = queue.after_rule();
  return queued;
}

Hold HoldOf(const ActiveJob& active) {
  const v1::Job& job = active.stored.job;
  if (IsStopping(job.state())) return Hold::kLeaves;
  const bool may_yield =
      job.has_train() && job.preemptions() < job.train().queue().max_preemptions();
  return may_yield ? Hold::kYields : Hold::kKeeps;
}

RunningJob DescribeRunning(const ActiveJob& active, int64_t aging_seconds, absl::Time now) {
  const v1::Job& job = active.stored.job;
  const int64_t waited =
      absl::ToInt64Seconds(ToTime(job.attempt_start_time()) - ToTime(job.queue_time()));
  return {.name = job.name(),
          .owner = job.owner(),
          .lane = active.lane,
          .device = active.worker ? active.worker->device : "",
          .host_bytes = active.host_bytes(),
          .rank = Rank(PriorityOf(job), waited, aging_seconds),
          .hold = HoldOf(active),
          .seconds_left = SecondsLeft(job, now)};
}

}  // namespace

std::vector<ScheduleDevice> ScheduleDevices(const DeviceRegistry& devices) {
  std::vector<ScheduleDevice> found;
  for (const v1::Device& device : devices.List()) {
    const int64_t bytes = std::max<int64_t>(0, device.memory_bytes() - kDeviceReserveBytes);
    found.push_back({.id = device.id(),
                     .kind = device.kind(),
                     .job_bytes = device.kind() == v1::DEVICE_KIND_CUDA ? bytes : 0,
                     .health = device.health(),
                     .health_message = device.health_message()});
  }
  return found;
}

std::map<DeviceUser, double> CountDeviceUse(JobTable& table, absl::Time now) {
  const DeviceUse& use = table.device_use();
  std::map<DeviceUser, double> counted = use.Counted(now);
  for (const auto& [row, active] : table.active()) {
    const v1::Job& job = active->stored.job;
    if (!HasWorker(job.state()) || !job.has_train()) continue;
    counted[{.owner = job.owner(), .kind = KindOf(job)}] += CountedSeconds(
        absl::ToDoubleSeconds(now - ToTime(job.attempt_start_time())), use.half_life_seconds());
  }
  return counted;
}

ScheduleSnapshot TakeScheduleSnapshot(JobTable& table, const DeviceRegistry& devices,
                                      const SnapshotArgs& args) {
  ScheduleSnapshot snapshot{.admission = args.admission,
                            .hold_message = args.hold_message,
                            .quotas = args.quotas,
                            .devices = ScheduleDevices(devices),
                            .host_memory_bytes = args.host_memory_bytes,
                            .aging_seconds = args.aging_seconds,
                            .fair_share_half_life_seconds = table.device_use().half_life_seconds(),
                            .running = {},
                            .queued = {}};
  for (const auto& [row, job] : table.active()) {
    if (job->state() == v1::JOB_STATE_QUEUED) {
      snapshot.queued.push_back(Describe(*job, table, args.now));
    } else if (HasWorker(job->state())) {
      snapshot.running.push_back(DescribeRunning(*job, args.aging_seconds, args.now));
    }
  }
  const std::map<DeviceUser, double> used = CountDeviceUse(table, args.now);
  for (QueuedJob& job : snapshot.queued) {
    const auto found = used.find({.owner = job.owner, .kind = job.device.kind});
    if (found != used.end()) job.owner_used_seconds = found->second;
  }
  return snapshot;
}

}  // namespace penstock::server
