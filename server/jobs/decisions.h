// What penstockd decides about jobs, as pure functions over snapshots: no clock, no store, no
// process. JobManager takes the snapshots and acts on the answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "google/rpc/status.pb.h"
#include "penstock/internal/worker.pb.h"
#include "penstock/v1/job.pb.h"

namespace penstock::server {

// ---- Who starts ----

// Training takes a whole device; exports take none but run one at a time.
enum class Lane : uint8_t { kDevice, kExport };
enum class Admission : uint8_t { kOpen, kDraining };

// What a training job asks of its device. Exports ask for none.
struct DeviceNeed {
  v1::DeviceKind kind = v1::DEVICE_KIND_CPU;
  std::string uuid = {};                 // of the GPU it wants; empty: any
  int64_t bytes = 0;                     // of device memory; 0 on the CPU
  std::vector<std::string> failed = {};  // GPUs that failed under it
};
struct ScheduleDevice {
  std::string id;
  v1::DeviceKind kind = v1::DEVICE_KIND_CPU;
  int64_t job_bytes = 0;  // of a GPU: what a job can have of its memory
  v1::DeviceHealth health = v1::DEVICE_HEALTH_HEALTHY;
  std::string health_message = {};
};
// Whether the job could run there at some time: healthy, of the right kind, large enough.
bool CanRunOn(const DeviceNeed& need, const ScheduleDevice& device);

struct QueuedJob {
  std::string name;
  Lane lane = Lane::kDevice;
  int64_t host_bytes = 0;
  DeviceNeed device = {};
};
struct RunningJob {
  std::string name;
  Lane lane = Lane::kDevice;
  std::string device;  // empty for exports
  int64_t host_bytes = 0;
};
struct ScheduleSnapshot {
  Admission admission = Admission::kOpen;
  std::vector<ScheduleDevice> devices;
  int64_t host_memory_bytes = 0;
  std::vector<RunningJob> running;
  std::vector<QueuedJob> queued;  // oldest first
};
struct Start {
  std::string name;
  std::string device;
  friend bool operator==(const Start&, const Start&) = default;
};
struct Wait {
  std::string name;
  v1::StateReason reason = v1::STATE_REASON_UNSPECIFIED;
  std::string message;
};
struct ScheduleDecision {
  std::vector<Start> starts;
  std::vector<Wait> waits;  // every queued job that does not start, in order of the queue
};
// First in, first out among the jobs that can run on a device; each gets the smallest free device
// that is large enough. A job that waits for memory holds back all that came after it, or small
// jobs could keep a large one waiting for ever.
ScheduleDecision Schedule(const ScheduleSnapshot& snapshot);

// ---- What an ended worker means ----

enum class ExitKind : uint8_t {
  kExited,     // `code` is the exit code
  kSignalled,  // `code` is the signal
  kUnknown,    // not our child: ended while, or after, another daemon was its parent
};
struct ExitFacts {
  ExitKind kind = ExitKind::kUnknown;
  int code = 0;
};
// Why the daemon itself killed the worker, if it did.
enum class KillCause : uint8_t { kNone, kSilence, kLingered };

struct WorkerEnd {
  v1::JobState state = v1::JOB_STATE_RUNNING;  // STARTING, RUNNING or CANCELLING
  int32_t max_attempts = 1;
  int32_t worker_deaths = 0;        // before this one, since the last new checkpoint
  bool saved_checkpoint = false;    // this attempt did
  int64_t step = 0;                 // last one that it finished
  v1::WorkerDeath last_death = {};  // before this one; unset if none
  std::optional<internal::AttemptOutcome> outcome;
  ExitFacts exit;
  KillCause kill_cause = KillCause::kNone;
  int64_t silence_seconds = 0;  // the limit, for messages
  std::string device = {};      // of the attempt; empty for exports
  // GPUs that failed under the job before, and whether it could run on a healthy one that did not.
  std::vector<std::string> failed_devices = {};
  bool has_other_device = false;
  bool out_of_memory_kill = false;  // the kernel killed some process for memory meanwhile
};
struct EndDecision {
  v1::JobState state = v1::JOB_STATE_FAILED;  // QUEUED or a final state
  v1::StateReason reason = v1::STATE_REASON_UNSPECIFIED;
  std::string message;
  google::rpc::Status error;  // set if the attempt failed
  v1::FailureClass failure_class = v1::FAILURE_CLASS_UNSPECIFIED;
  bool worker_died = false;
  int32_t worker_deaths = 0;    // from now on; max_attempts of them end the job
  bool device_failed = false;   // the job does not start on this device again
  std::string quarantine = {};  // why the device goes into quarantine; empty: it does not
};
// A worker's death queues the job again, to go on from its newest checkpoint, unless max_attempts
// workers in a row died without a new one, or the same step has failed twice in the same way by
// what looks like our doing (a crash, a kill for memory, silence) and not like somebody's kill -9.
// A worker that was told to stop by a signal has saved its last step: no death, the job goes on.
// A device that failed goes into quarantine, and the job is queued once for another device. If that
// one fails too and the fault is one that a program can cause (metadata `fault`: "program"; an
// illegal address), the job is to blame: the second device stays in service.
EndDecision AfterWorkerEnd(const WorkerEnd& end);

// "worker killed by SIGSEGV (segmentation fault)", "worker exited with code 3 ..."
std::string DescribeExit(const WorkerEnd& end);
// By reason first (DATA_INVALID is DATA whatever its code), then by code.
v1::FailureClass ClassifyFailure(const google::rpc::Status& error);

// ---- What a restarted daemon makes of an unfinished job ----

// Who holds jobs/{id}/worker.lock.
enum class LockFacts : uint8_t {
  kFree,
  kHeldByThisAttempt,
  kHeldByOlderAttempt,  // a worker that has yet to learn that its attempt is over
};
struct ReconcileSnapshot {
  v1::JobState state = v1::JOB_STATE_QUEUED;
  LockFacts lock = LockFacts::kFree;
  // worker.lock names this attempt, held or not: its worker did start.
  bool worker_started = false;
  bool has_outcome = false;  // in the store or in outcome.pb
};
enum class ReconcileAction : uint8_t {
  kStayQueued,
  kAdopt,     // watch the living worker
  kEnd,       // AfterWorkerEnd() decides, exit unknown
  kNeverRan,  // back to the queue, or CANCELLED if that was asked; no death counted
};
struct ReconcileDecision {
  ReconcileAction action = ReconcileAction::kStayQueued;
  // First kill the holder of the lock and wait for its end.
  bool kill_holder = false;
};
ReconcileDecision Reconcile(const ReconcileSnapshot& snapshot);

}  // namespace penstock::server
