// What penstockd decides about jobs that have, or had, a worker, as pure functions over snapshots:
// no clock, no store, no process. WorkerManager takes the snapshots and acts on the answers. Who
// starts is in schedule.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "google/rpc/status.pb.h"
#include "penstock/internal/worker.pb.h"
#include "penstock/v1/job.pb.h"

namespace penstock::server {

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
enum class KillCause : uint8_t {
  kNone,
  kSilence,   // it reported nothing
  kLingered,  // it did not exit after its outcome
  kStuck,     // it reported, but did not get on
  kGrace,     // asked to stop, it did not within its grace
};

struct WorkerEnd {
  v1::JobState state = v1::JOB_STATE_RUNNING;  // STARTING, RUNNING or one of IsStopping()
  // Of the job: why it was asked to stop, if it was.
  v1::StateReason state_reason = v1::STATE_REASON_UNSPECIFIED;
  std::string state_message = {};
  int32_t max_attempts = 1;
  int32_t worker_deaths = 0;        // before this one, since the last new checkpoint
  bool saved_checkpoint = false;    // this attempt did
  int64_t step = 0;                 // last one that it finished
  v1::WorkerDeath last_death = {};  // before this one; unset if none
  std::optional<internal::AttemptOutcome> outcome;
  ExitFacts exit;
  KillCause kill_cause = KillCause::kNone;
  int64_t kill_seconds = 0;  // the limit that it passed, for messages
  std::string device = {};   // of the attempt; empty for exports
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
  std::string death_cause = {};  // what is compared with the next death; empty: none is counted
  int32_t worker_deaths = 0;     // from now on; max_attempts of them end the job
  int64_t pause_seconds = 0;     // before the next attempt
  bool device_failed = false;    // the job does not start on this device again
  std::string quarantine = {};   // why the device goes into quarantine; empty: it does not
};
// A worker's death queues the job again, to go on from its newest checkpoint, unless max_attempts
// workers in a row died without a new one, or the same step has failed twice in the same way by
// what looks like our doing (a crash, a kill for memory, silence) and not like somebody's kill -9.
// The first attempt after a new checkpoint follows at once, later ones after pauses that double. A
// failure of the system (a file that cannot be read now) counts as a death.
// A worker that has stopped because it was told to has saved its last step: the job is CANCELLED,
// PAUSED or QUEUED as its state says, and goes on by itself if only a signal told the worker. One
// that was killed because its grace was over leaves the job at its newest checkpoint, and no death
// is counted.
// A job that shall pause is PAUSED wherever it would be queued.
// A device that failed goes into quarantine, and the job is queued once for another device. If that
// one fails too and the fault is one that a program can cause (metadata `fault`: "program"; an
// illegal address), the job is to blame: the second device stays in service.
EndDecision AfterWorkerEnd(const WorkerEnd& end);

// Whether an error with this reason is the system's and not the job's, and may be gone later: a
// disk that is full or does not answer now.
bool MayPass(std::string_view reason);

// How long before the next attempt when so many workers have died since the last new checkpoint.
int64_t RetryPauseSeconds(int32_t deaths);

// ---- When a worker is stuck ----

// What is known of how long a job takes to get on. "Getting on" is a step done, or a larger share
// of another phase.
struct Pace {
  double predicted_step_seconds = 0;  // by the plan; 0: not known
  double longest_seconds = 0;         // between two times that it got on
  bool has_step = false;              // of this attempt
};
// Far longer than a job of this pace should take: a step may be slow, the machine busy.
int64_t StuckAfterSeconds(const Pace& pace);

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
  kStay,      // it has no worker
  kAdopt,     // watch the living worker
  kEnd,       // AfterWorkerEnd() decides, exit unknown
  kNeverRan,  // back to the queue, or where a stop was to bring it; no death counted
};
struct ReconcileDecision {
  ReconcileAction action = ReconcileAction::kStay;
  // First kill the holder of the lock and wait for its end.
  bool kill_holder = false;
};
ReconcileDecision Reconcile(const ReconcileSnapshot& snapshot);

}  // namespace penstock::server
