// Lives and ends of workers: starts the jobs that Schedule() picks, asks those to stop that have to
// make room, learns of ends, kills workers that are silent or stuck, and at start makes every
// unfinished job's state true again.
//
// Order when a job starts: attempt number in the store, then assignment.pb, then the process. A
// crash between any two leaves an attempt that never ran, which Recover() puts back. A worker
// holds worker.lock from its first moment and attaches before it touches anything, so of two
// workers of one job at most the one of the current attempt ever works.
// Belongs to the control thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/devices/device_registry.h"
#include "server/jobs/attempt_end.h"
#include "server/jobs/decisions.h"
#include "server/jobs/job_table.h"
#include "server/jobs/process.h"
#include "server/jobs/schedule.h"
#include "server/jobs/task_queue.h"
#include "server/jobs/worker_reports.h"
#include "server/store/state_directory.h"

namespace penstock::server {

struct WorkerOptions {
  std::string binary;
  int64_t host_memory_bytes = 0;
  std::chrono::milliseconds silence{120'000};
  // How long a worker may take to exit after it reported its outcome.
  std::chrono::milliseconds linger{20'000};
  // Before a job is started again that could not be for a reason which may pass.
  std::chrono::milliseconds start_retry{60'000};
  // In which a waiting job's rank rises by one; 0: never.
  int64_t aging_seconds = 0;
  // Seconds without getting on after which a worker is stuck.
  std::function<int64_t(const Pace&)> stuck_after = StuckAfterSeconds;
  Quotas quotas = {};
  bool confine = false;
  // The profile that a job on this device is planned by, as text; null or empty: by its name.
  std::function<std::string(const v1::Device& device)> profile_json = nullptr;
};

// What becomes of running jobs when the daemon stops.
enum class OnDrain : uint8_t {
  kSave,   // each saves its last finished step and waits in the queue
  kRunOn,  // they run on
};

class WorkerManager {
 public:
  WorkerManager(WorkerOptions options, const StateDirectory& directory, JobTable& table,
                WorkerReports& reports, DeviceRegistry& devices, TaskQueue& control,
                std::unique_ptr<ProcessWatcher> watcher);

  // Before anything is served: adopts living workers, ends or requeues the jobs of dead ones.
  void Recover();
  // Starts what can start. Call after every change of the queue.
  void Dispatch();
  // Kills workers that are silent, stuck or linger, ends what has run for too long, starts what has
  // waited long enough. Call every second or so.
  void Tick();
  // From now on nothing starts.
  void Drain(OnDrain running);
  // An admin has nothing start, or ends that; what runs, runs on. Does not end a Drain().
  enum class AdminHold : uint8_t { kNone, kHold };
  void SetAdminHold(AdminHold hold, const std::string& message);
  // Nothing starts until Release(): a device is to be measured, alone. FailedPrecondition /
  // DEVICE_BUSY while a job runs or something is measured already.
  absl::Status HoldBack();
  void Release();
  // The driver has reported the device lost and the registry has put it in quarantine. A job that
  // it has is left alone: its own error or its silence ends it.
  void OnDeviceLost(const v1::Device& device);

  Admission admission() const { return admission_; }
  const std::string& hold_message() const { return hold_message_; }
  const WorkerOptions& options() const { return options_; }
  int64_t reserved_bytes() const;

 private:
  // Asks the worker to save and stop. What cannot be stored now is asked for again by the caller.
  absl::Status RequestStop(ActiveJob& job, v1::JobState to, v1::StateReason reason,
                           const std::string& message);
  // A queued job ends: what it waits for will never come.
  void DropOut(ActiveJob& job, Wait why);
  // Asks jobs that have used up limits.run_seconds to stop.
  void EnforceTimeLimits();
  void StartJob(ActiveJob& job, const std::string& device);
  absl::Status PrepareAttempt(const ActiveJob& job, const std::string& device);
  absl::Status SpawnWorker(ActiveJob& job, const std::string& device);
  absl::Status WatchWorker(ActiveJob& job);
  absl::Status Adopt(ActiveJob& job, ProcessHandle process);
  absl::Status RecoverJob(ActiveJob& job);
  // Back to the queue with no death counted, for so long, or where it was to go when it stopped.
  absl::Status PutBack(ActiveJob& job, v1::StateReason reason, const std::string& message,
                       std::chrono::milliseconds pause);
  // Back to the queue for a while: its worker could not be started, and later perhaps can.
  void StartLater(ActiveJob& job, const absl::Status& error);
  // By whether what is wrong may pass.
  void StartLaterOrGiveUp(ActiveJob& job, const absl::Status& error);
  void OnWorkerEnd(const std::string& name, int32_t attempt, ExitFacts exit);
  // Fails the job for a reason that another attempt would meet again; kills its worker, if any.
  void GiveUp(ActiveJob& job, const absl::Status& error);

  const WorkerOptions options_;
  const StateDirectory& directory_;
  JobTable& table_;
  WorkerReports& reports_;
  DeviceRegistry& devices_;
  AttemptEnds ends_;
  TaskQueue& control_;
  Admission admission_ = Admission::kOpen;
  std::string hold_message_;
  bool held_back_ = false;
  // Last: its thread posts to control_ until it is gone.
  std::unique_ptr<ProcessWatcher> watcher_;
};

}  // namespace penstock::server
