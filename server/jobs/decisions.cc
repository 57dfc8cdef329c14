#include "server/jobs/decisions.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "google/rpc/error_details.pb.h"
#include "server/reasons.h"
#include "server/store/job_state.h"

namespace penstock::server {
namespace {

google::rpc::Status MakeError(absl::StatusCode code, std::string_view reason,
                              const std::string& message) {
  google::rpc::Status error;
  error.set_code(static_cast<int>(code));
  error.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_domain("penstock");
  info.set_reason(std::string(reason));
  error.add_details()->PackFrom(info);
  return error;
}

std::string SignalText(int signal) {
  const char* name = sigabbrev_np(signal);
  const char* text = sigdescr_np(signal);
  if (name == nullptr) return absl::StrCat("signal ", signal);
  return absl::StrCat("SIG", name, text == nullptr ? "" : absl::StrCat(" (", text, ")"));
}

// What a failure was, for the comparison with the next one: the error, if it could say one.
std::string CauseOf(const WorkerEnd& end) {
  return end.outcome && end.outcome->has_error() ? end.outcome->error().message()
                                                 : DescribeExit(end);
}

// Whether it died by what another attempt would meet again: not by a kill from outside.
bool DiedOfItself(const WorkerEnd& end) {
  if (end.outcome && end.outcome->has_error()) return true;
  if (end.kill_cause == KillCause::kSilence || end.kill_cause == KillCause::kStuck ||
      end.out_of_memory_kill) {
    return true;
  }
  return end.exit.kind == ExitKind::kExited ||
         (end.exit.kind == ExitKind::kSignalled && end.exit.code != SIGKILL);
}

bool DiedTheSameWayTwice(const WorkerEnd& end) {
  return DiedOfItself(end) && !end.saved_checkpoint && end.last_death.attempt() > 0 &&
         end.last_death.step() == end.step && end.last_death.cause() == CauseOf(end);
}

google::rpc::ErrorInfo InfoOf(const google::rpc::Status& error) {
  google::rpc::ErrorInfo info;
  for (const auto& detail : error.details()) {
    if (detail.UnpackTo(&info)) return info;
  }
  return info;
}

// A job that was asked to stop because its time was over has failed, the others are cancelled.
EndDecision Cancelled(const WorkerEnd& end, std::string message) {
  EndDecision decision;
  decision.worker_deaths = end.worker_deaths;
  decision.reason = end.state_reason;
  decision.message = std::move(message);
  if (end.state_reason != v1::STATE_REASON_TIME_LIMIT) {
    decision.state = v1::JOB_STATE_CANCELLED;
    decision.reason = v1::STATE_REASON_CANCEL_REQUESTED;
    return decision;
  }
  decision.state = v1::JOB_STATE_FAILED;
  decision.failure_class = v1::FAILURE_CLASS_RESOURCE;
  decision.error = MakeError(absl::StatusCode::kDeadlineExceeded, reason::kTimeLimit,
                             decision.message.empty() ? end.state_message : decision.message);
  decision.message = decision.error.message();
  return decision;
}

// It was asked to stop, and has: its last finished step is saved, or `message` says otherwise.
EndDecision AfterStop(const WorkerEnd& end, const std::string& message) {
  if (end.state == v1::JOB_STATE_CANCELLING) return Cancelled(end, message);
  EndDecision decision;
  decision.worker_deaths = end.worker_deaths;
  decision.state = v1::JOB_STATE_QUEUED;
  if (end.state == v1::JOB_STATE_PAUSING || end.state == v1::JOB_STATE_YIELDING) {
    decision.reason = end.state_reason;
    decision.message = message.empty() ? end.state_message : message;
  } else if (end.outcome && end.outcome->result() == internal::ATTEMPT_RESULT_ROLLED_BACK) {
    decision.reason = v1::STATE_REASON_LOSS_SPIKE;
    decision.message =
        "after a loss spike the job goes on from an earlier checkpoint; its log says which, and "
        "what "
        "data it leaves out";
  } else {
    // No one asked the daemon: somebody signalled the worker.
    decision.reason = v1::STATE_REASON_WORKER_STOPPED;
    decision.message = "a signal told the worker to stop; the job goes on where it did";
  }
  return decision;
}

// The worker ended and nobody knows with what result, or it failed for a reason that may pass.
EndDecision AfterDeath(const WorkerEnd& end) {
  EndDecision decision;
  decision.message = CauseOf(end);
  if (end.kill_cause == KillCause::kGrace && !end.outcome) {
    return AfterStop(end, decision.message + "; the job stands at its newest checkpoint");
  }
  decision.death_cause = decision.message;
  if (end.state == v1::JOB_STATE_CANCELLING) {
    decision =
        Cancelled(end, decision.message + " while it was to stop; its last steps may not be saved");
    decision.death_cause = CauseOf(end);
    return decision;
  }
  if (end.outcome && end.outcome->has_error()) {
    decision.error = end.outcome->error();
    decision.failure_class = ClassifyFailure(decision.error);
  } else {
    decision.error = MakeError(absl::StatusCode::kInternal, reason::kWorkerDied, decision.message);
    decision.failure_class = v1::FAILURE_CLASS_SERVER;
  }
  decision.reason = v1::STATE_REASON_WORKER_DIED;
  const int32_t deaths = (end.saved_checkpoint ? 0 : end.worker_deaths) + 1;
  decision.worker_deaths = deaths;
  if (DiedTheSameWayTwice(end)) {
    absl::StrAppend(&decision.message, " after step ", end.step,
                    ", as the attempt before it: another one would do the same");
  } else if (deaths < end.max_attempts) {
    decision.state = v1::JOB_STATE_QUEUED;
    decision.pause_seconds = RetryPauseSeconds(deaths);
    absl::StrAppend(&decision.message, "; attempt ", deaths + 1, " of ", end.max_attempts,
                    " since the last new checkpoint is queued");
  } else if (end.max_attempts > 1) {
    absl::StrAppend(&decision.message, "; no attempts are left of ", end.max_attempts,
                    " since the last new checkpoint");
  }
  return decision;
}

// `decision` has the worker's error and its message.
EndDecision AfterDeviceFailure(const WorkerEnd& end, EndDecision decision) {
  const google::rpc::ErrorInfo info = InfoOf(decision.error);
  const auto fault = info.metadata().find("fault");
  const bool by_program = fault != info.metadata().end() && fault->second == "program";
  decision.device_failed = true;
  if (by_program && !end.failed_devices.empty()) {
    absl::StrAppend(&decision.message, "; it did so on ", end.failed_devices.front(),
                    " too, so the program and not the device is at fault: report it");
    decision.failure_class = v1::FAILURE_CLASS_SERVER;
    return decision;
  }
  decision.quarantine = decision.error.message();
  decision.failure_class = v1::FAILURE_CLASS_RESOURCE;
  if (end.state == v1::JOB_STATE_CANCELLING) {
    decision.state = v1::JOB_STATE_CANCELLED;
    decision.reason = v1::STATE_REASON_CANCEL_REQUESTED;
  } else if (end.failed_devices.empty() && end.has_other_device) {
    decision.state = v1::JOB_STATE_QUEUED;
    decision.reason = v1::STATE_REASON_DEVICE_FAILED;
    absl::StrAppend(&decision.message, "; the job is queued for another device");
  }
  return decision;
}

EndDecision AfterOutcome(const WorkerEnd& end) {
  EndDecision decision;
  decision.worker_deaths = end.worker_deaths;
  switch (end.outcome->result()) {
    case internal::ATTEMPT_RESULT_SUCCEEDED:
      decision.state = v1::JOB_STATE_SUCCEEDED;
      decision.message = end.outcome->early_stop();
      if (!decision.message.empty()) decision.reason = v1::STATE_REASON_EARLY_STOPPING;
      return decision;
    case internal::ATTEMPT_RESULT_FAILED:
      decision.state = v1::JOB_STATE_FAILED;
      decision.error = end.outcome->error();
      decision.message = decision.error.message();
      if (InfoOf(decision.error).reason() == reason::kDeviceFailed) {
        return AfterDeviceFailure(end, std::move(decision));
      }
      if (MayPass(InfoOf(decision.error).reason()) && end.state != v1::JOB_STATE_CANCELLING)
        return AfterDeath(end);
      decision.failure_class = ClassifyFailure(decision.error);
      return decision;
    case internal::ATTEMPT_RESULT_STOPPED:
    case internal::ATTEMPT_RESULT_ROLLED_BACK:
      return AfterStop(end, "");
    default:
      return AfterDeath(end);
  }
}

}  // namespace

bool MayPass(std::string_view reason) {
  return reason == reason::kIoError || reason == reason::kDiskInsufficient;
}

std::string DescribeExit(const WorkerEnd& end) {
  switch (end.kill_cause) {
    case KillCause::kSilence:
      return absl::StrCat("worker killed by penstockd: it reported nothing for ", end.kill_seconds,
                          " s");
    case KillCause::kStuck:
      return absl::StrCat("worker killed by penstockd: it did not get on for ", end.kill_seconds,
                          " s");
    case KillCause::kGrace:
      return absl::StrCat("worker killed by penstockd: asked to stop, it had not done so after ",
                          end.kill_seconds, " s");
    case KillCause::kNone:
    case KillCause::kLingered:
      break;
  }
  switch (end.exit.kind) {
    case ExitKind::kSignalled:
      return absl::StrCat("worker killed by ", SignalText(end.exit.code),
                          end.exit.code == SIGKILL && end.out_of_memory_kill
                              ? "; the kernel killed a process for lack of memory meanwhile, "
                                "see dmesg"
                              : "");
    case ExitKind::kExited:
      return absl::StrCat("worker exited with code ", end.exit.code, " without a result");
    case ExitKind::kUnknown:
      break;
  }
  return "worker ended without a result while penstockd was away";
}

v1::FailureClass ClassifyFailure(const google::rpc::Status& error) {
  if (InfoOf(error).reason() == reason::kDataInvalid) return v1::FAILURE_CLASS_DATA;
  switch (static_cast<absl::StatusCode>(error.code())) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kOutOfRange:
      return v1::FAILURE_CLASS_USER;
    case absl::StatusCode::kDataLoss:
      return v1::FAILURE_CLASS_DATA;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
      return v1::FAILURE_CLASS_RESOURCE;
    default:
      return v1::FAILURE_CLASS_SERVER;
  }
}

EndDecision AfterWorkerEnd(const WorkerEnd& end) {
  EndDecision decision = end.outcome ? AfterOutcome(end) : AfterDeath(end);
  if (end.state == v1::JOB_STATE_PAUSING && decision.state == v1::JOB_STATE_QUEUED) {
    decision.state = v1::JOB_STATE_PAUSED;
    decision.pause_seconds = 0;
  }
  return decision;
}

int64_t RetryPauseSeconds(int32_t deaths) {
  constexpr int64_t kFirst = 5, kLongest = 300;
  if (deaths <= 1) return 0;
  return std::min(kLongest, kFirst << std::min(deaths - 2, 10));
}

int64_t StuckAfterSeconds(const Pace& pace) {
  constexpr double kBeforeFirstStep = 7200, kLeast = 1800, kFactor = 100;
  const double slow = kFactor * std::max(pace.predicted_step_seconds, pace.longest_seconds);
  return static_cast<int64_t>(std::max(pace.has_step ? kLeast : kBeforeFirstStep, slow));
}

ReconcileDecision Reconcile(const ReconcileSnapshot& snapshot) {
  ReconcileDecision decision;
  decision.kill_holder = snapshot.lock == LockFacts::kHeldByOlderAttempt;
  if (!HasWorker(snapshot.state)) return decision;
  if (snapshot.lock == LockFacts::kHeldByThisAttempt) {
    decision.action = ReconcileAction::kAdopt;
  } else if (snapshot.has_outcome || snapshot.worker_started) {
    decision.action = ReconcileAction::kEnd;
  } else {
    decision.action = ReconcileAction::kNeverRan;
  }
  return decision;
}

}  // namespace penstock::server
