#include "server/http/metrics_collector.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "google/protobuf/util/time_util.h"
#include "server/store/job_state.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
namespace {

using google::protobuf::util::TimeUtil;

constexpr int64_t kPointsPerTurn = 4096;
constexpr size_t kMaxEnded = 200;
constexpr int64_t kCheckpointsOfAJob = 1000;

v1::Job WithoutDetails(const v1::Job& job) {
  v1::Job slim;
  slim.set_name(job.name());
  slim.mutable_train()->set_display_name(job.train().display_name());
  slim.set_state(job.state());
  slim.set_state_reason(job.state_reason());
  slim.set_attempt(job.attempt());
  slim.set_preemptions(job.preemptions());
  slim.set_owner(job.owner());
  slim.set_device(job.device());
  *slim.mutable_progress() = job.progress();
  slim.mutable_plan()->set_host_peak_bytes(job.plan().host_peak_bytes());
  slim.mutable_plan()->set_device_bytes(job.plan().device_bytes());
  slim.mutable_plan()->set_parameters(job.plan().parameters());
  slim.mutable_plan()->set_predicted_step_seconds(job.plan().predicted_step_seconds());
  *slim.mutable_create_time() = job.create_time();
  *slim.mutable_queue_time() = job.queue_time();
  *slim.mutable_end_time() = job.end_time();
  return slim;
}

absl::Time TimeOf(const google::protobuf::Timestamp& time) {
  return absl::FromUnixMicros(TimeUtil::TimestampToMicroseconds(time));
}

}  // namespace

void MetricsCollector::NoteEnd(const v1::Job& job) {
  ended_.push_back(WithoutDetails(job));
  if (ended_.size() > kMaxEnded) ended_.pop_front();
}

void MetricsCollector::Collect(std::function<void(MetricsSnapshot)> done) {
  services_.control.Post([this, done = std::move(done)]() mutable {
    auto pass = std::make_shared<Pass>();
    pass->snapshot = Look();
    pass->done = std::move(done);
    services_.streams.Post([this, pass] { ReadMeters(pass); });
  });
}

void MetricsCollector::AddJob(MetricsSnapshot& snapshot, const v1::Job& job) const {
  if (static_cast<int64_t>(snapshot.jobs.size()) >= kMaxMeteredJobs) {
    ++snapshot.omitted_jobs;
    return;
  }
  MeteredJob metered;
  metered.job = WithoutDetails(job);
  if (job.attempt() > 0) {
    const auto checkpoints = table_.store().ListCheckpoints(job.name(), -1, kCheckpointsOfAJob);
    if (checkpoints.ok() && !checkpoints->empty()) metered.checkpoint = checkpoints->back();
  }
  snapshot.jobs.push_back(std::move(metered));
}

MetricsSnapshot MetricsCollector::Look() {
  MetricsSnapshot snapshot;
  snapshot.now = absl::Now();
  snapshot.info = services_.server_info;
  services_.manager.Describe(snapshot.info);
  const v1::ListDevicesResponse devices = services_.manager.ListDevices();
  snapshot.devices.assign(devices.devices().begin(), devices.devices().end());
  snapshot.watch_streams = services_.watches.count();
  snapshot.rpcs = services_.rpc_meter.Calls();
  for (const bool with_worker : {true, false}) {
    for (const auto& [row, active] : table_.active()) {
      if (HasWorker(active->state()) != with_worker) continue;
      ++snapshot.jobs_in_state[active->state()];
      AddJob(snapshot, active->stored.job);
      if (active->state() != v1::JOB_STATE_QUEUED) continue;
      v1::StateReason reason = active->stored.job.state_reason();
      if (active->wait.reason != v1::STATE_REASON_UNSPECIFIED) reason = active->wait.reason;
      ++snapshot.queued_for_reason[reason];
    }
  }
  while (!ended_.empty() && TimeOf(ended_.front().end_time()) < snapshot.now - kMeteredAfterEnd) {
    ended_.pop_front();
  }
  std::set<std::string> seen;
  for (auto job = ended_.rbegin(); job != ended_.rend(); ++job) {
    // Not what was resumed or deleted since; and the end of a job that ended twice, once.
    const bool stands = table_.Find(job->name()) == nullptr && seen.insert(job->name()).second &&
                        table_.store().GetJob(job->name()).ok();
    if (stands) AddJob(snapshot, *job);
  }
  return snapshot;
}

void MetricsCollector::ReadMeters(const std::shared_ptr<Pass>& pass) {
  MetricsSnapshot& snapshot = pass->snapshot;
  for (int64_t points = 0; pass->next_job < snapshot.jobs.size() && points < kPointsPerTurn;) {
    MeteredJob& metered = snapshot.jobs[pass->next_job];
    const std::string& name = metered.job.name();
    const std::pair key(name, TimeUtil::TimestampToMicroseconds(metered.job.create_time()));
    auto& reader = readers_.try_emplace(key, services_.directory.Metrics(name)).first->second;
    const absl::StatusOr<bool> more = reader.Read(kPointsPerTurn);
    if (!more.ok()) spdlog::warn("{}", std::string(more.status().message()));
    metered.meter = reader.meter();
    // A file that cannot be read gives what it gave until now.
    if (!more.ok() || !*more) ++pass->next_job;
    points += more.ok() && *more ? kPointsPerTurn : 1;
  }
  if (pass->next_job < snapshot.jobs.size()) {
    return services_.streams.Post([this, pass] { ReadMeters(pass); });
  }
  std::set<std::pair<std::string, int64_t>> shown;
  for (const MeteredJob& metered : snapshot.jobs) {
    shown.emplace(metered.job.name(), TimeUtil::TimestampToMicroseconds(metered.job.create_time()));
  }
  std::erase_if(readers_, [&](const auto& entry) { return !shown.contains(entry.first); });
  struct statvfs disk {};
  if (statvfs(services_.directory.path().c_str(), &disk) == 0) {
    snapshot.state_free_bytes = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  }
  pass->done(std::move(snapshot));
}

}  // namespace penstock::server
