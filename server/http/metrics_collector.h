// What /metrics says, gathered: what the control thread knows, then what the metric files of the
// jobs say, a few thousand points at a turn.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "penstock/v1/admin_service.pb.h"
#include "penstock/v1/checkpoint.pb.h"
#include "penstock/v1/device.pb.h"
#include "penstock/v1/job.pb.h"
#include "server/http/job_meter.h"
#include "server/jobs/job_table.h"
#include "server/rpc/services.h"

namespace penstock::server {

struct MeteredJob {
  // Without what no metric is made of: the spec but for its display name, the plan but for its
  // sums.
  v1::Job job;
  std::optional<v1::Checkpoint> checkpoint;  // newest
  JobMeter meter;
};

struct MetricsSnapshot {
  v1::GetServerInfoResponse info;
  std::vector<v1::Device> devices;
  std::map<v1::JobState, int64_t> jobs_in_state;         // all that have not ended
  std::map<v1::StateReason, int64_t> queued_for_reason;  // of those that wait
  int64_t watch_streams = 0;
  std::vector<MethodCalls> rpcs;
  std::vector<MeteredJob> jobs;
  int64_t omitted_jobs = 0;
  int64_t state_free_bytes = 0;
  absl::Time now;
};

// Jobs that have not ended and those that have since, for a while; no more than this: the others
// are counted in `omitted_jobs`. Those with a worker come first.
inline constexpr int64_t kMaxMeteredJobs = 500;
inline constexpr absl::Duration kMeteredAfterEnd = absl::Minutes(15);

class MetricsCollector {
 public:
  MetricsCollector(ServiceContext& services, JobTable& table)
      : services_(services), table_(table) {}

  // `done` is called on the queue `streams`. Any thread.
  void Collect(std::function<void(MetricsSnapshot)> done);
  // Control thread.
  void NoteEnd(const v1::Job& job);

 private:
  struct Pass {
    MetricsSnapshot snapshot;
    size_t next_job = 0;
    std::function<void(MetricsSnapshot)> done;
  };
  MetricsSnapshot Look();
  void AddJob(MetricsSnapshot& snapshot, const v1::Job& job) const;
  void ReadMeters(const std::shared_ptr<Pass>& pass);

  ServiceContext& services_;
  JobTable& table_;
  std::deque<v1::Job> ended_;  // control thread; newest last
  // Queue `streams`. By job and time of creation: a name may be used again.
  std::map<std::pair<std::string, int64_t>, MeterReader> readers_;
};

}  // namespace penstock::server
