// The jobs that have not ended, in memory, in step with the store.
//
// Every change of state goes through Move(): first the store's transaction, then memory, then
// the watchers. Ended jobs are in the store alone, and on its board for readers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/decisions.h"
#include "server/jobs/device_use.h"
#include "server/jobs/event_hub.h"
#include "server/jobs/process.h"
#include "server/jobs/schedule.h"
#include "server/store/job_store.h"
#include "server/store/segment_file.h"

namespace penstock::server {

// What exists only while a job has a worker.
struct RunningWorker {
  using Clock = std::chrono::steady_clock;
  std::optional<ProcessHandle> process;
  std::string device;
  std::optional<SegmentWriter> metrics;
  uint64_t acknowledged = 0;
  uint64_t save_request = 0;   // ReportResponse.save_request
  uint64_t trace_request = 0;  // ReportResponse.trace_request
  uint64_t trace_written = 0;  // the last that was answered
  int64_t last_step = 0;       // of the metrics that this daemon has stored
  int64_t log_bytes = 0;
  Clock::time_point last_report = Clock::now();
  std::optional<internal::AttemptOutcome> outcome;
  Clock::time_point outcome_time;
  Clock::time_point last_progress = Clock::now();  // when it got on
  Pace pace;
  std::optional<Clock::time_point> stop_time;  // when it was asked to stop
  KillCause kill_cause = KillCause::kNone;
  int64_t kill_seconds = 0;  // the limit that it passed
  int64_t oom_kills_before = 0;
};

struct ActiveJob {
  StoredJob stored;  // job.progress is newer than in the store
  Lane lane = Lane::kDevice;
  Wait wait;                   // while queued: the last schedule's answer
  int64_t queue_position = 0;  // from 1 while queued
  std::optional<RunningWorker> worker;

  const std::string& name() const { return stored.job.name(); }
  v1::JobState state() const { return stored.job.state(); }
  int64_t host_bytes() const { return stored.job.plan().host_peak_bytes(); }
  DeviceNeed device_need() const;
  LivePart live() const;
};

// Belongs to the control thread.
class JobTable {
 public:
  // `half_life_seconds` of device_use.h.
  JobTable(JobStore& store, EventHub& hub, int64_t half_life_seconds)
      : store_(store), hub_(hub), device_use_(half_life_seconds) {}

  // Hears of every job that has ended, after the fact.
  void SetEndListener(std::function<void(const v1::Job&)> listener) {
    end_listener_ = std::move(listener);
  }

  // Reads the unfinished jobs; once, at start.
  absl::Status Load();

  // Null if there is no such job or it has ended.
  ActiveJob* Find(const std::string& name);
  // By row: the order of the queue.
  std::map<int64_t, std::unique_ptr<ActiveJob>>& active() { return active_; }
  int64_t CountInState(v1::JobState state) const;
  int64_t CountWithWorker() const;

  // The job as a client sees it now. NotFound / JOB_NOT_FOUND. Any thread.
  absl::StatusOr<v1::Job> Get(const std::string& name) const { return store_.board().Get(name); }
  // Adds what only memory knows to a job read from the store.
  v1::Job Live(StoredJob stored) const;
  // What clients see of what memory alone knows: after each change of it.
  void ShowLive(const ActiveJob& job) { store_.board().SetLive(job.stored.job.name(), job.live()); }

  // All of them or none.
  absl::Status Insert(const std::vector<v1::Job>& jobs, const RequestRecord* request);
  // `job` is gone after a move to a final state.
  absl::Status Move(ActiveJob& job, v1::Job after, int32_t worker_deaths,
                    const RequestRecord* request = nullptr);

  // An ended job is unfinished again.
  absl::Status Reopen(v1::JobState from, const v1::Job& after, const RequestRecord* request);

  // Of attempts that have ended.
  const DeviceUse& device_use() const { return device_use_; }
  JobStore& store() { return store_; }
  EventHub& hub() { return hub_; }

 private:
  void Add(StoredJob stored);
  void Count(const EndedDeviceUse& use);

  JobStore& store_;
  EventHub& hub_;
  DeviceUse device_use_;
  std::function<void(const v1::Job&)> end_listener_;
  std::map<int64_t, std::unique_ptr<ActiveJob>> active_;
  std::map<std::string, ActiveJob*> by_name_;
};

}  // namespace penstock::server
