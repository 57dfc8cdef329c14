#include "server/jobs/decisions.h"

#include <algorithm>
#include <csignal>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "google/rpc/error_details.pb.h"

namespace penstock::server {
namespace {

// What is left to give while Schedule() goes through the queue.
struct Resources {
  std::vector<std::string> free_devices;
  std::string device_holder;  // for messages: a job that has a device
  std::string export_holder;
  int64_t reserved_bytes = 0;
};

Resources Unused(const ScheduleSnapshot& snapshot) {
  Resources left{.free_devices = snapshot.devices,
                 .device_holder = {},
                 .export_holder = {},
                 .reserved_bytes = 0};
  for (const RunningJob& job : snapshot.running) {
    left.reserved_bytes += job.host_bytes;
    if (job.lane == Lane::kExport) {
      left.export_holder = job.name;
    } else {
      left.device_holder = job.name;
      std::erase(left.free_devices, job.device);
    }
  }
  return left;
}

bool LaneIsFree(const Resources& left, Lane lane) {
  return lane == Lane::kExport ? left.export_holder.empty() : !left.free_devices.empty();
}

Wait WaitForLane(const Resources& left, const QueuedJob& job) {
  if (job.lane == Lane::kExport) {
    return {job.name, v1::STATE_REASON_DEVICE_BUSY,
            absl::StrCat("waits for ", left.export_holder, ": exports run one at a time")};
  }
  return {job.name, v1::STATE_REASON_DEVICE_BUSY,
          absl::StrCat("waits for the device, which ",
                       left.device_holder.empty() ? "an earlier job" : left.device_holder, " has")};
}

Wait WaitForMemory(const Resources& left, const QueuedJob& job, int64_t host_memory_bytes) {
  return {job.name, v1::STATE_REASON_HOST_MEMORY,
          absl::StrCat("needs ", FormatBytes(job.host_bytes), " of host memory; ",
                       FormatBytes(std::max<int64_t>(0, host_memory_bytes - left.reserved_bytes)),
                       " of ", FormatBytes(host_memory_bytes), " is not reserved")};
}

google::rpc::Status ServerError(const std::string& message) {
  google::rpc::Status error;
  error.set_code(static_cast<int>(absl::StatusCode::kInternal));
  error.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_domain("penstock");
  info.set_reason(std::string(reason::kWorkerDied));
  error.add_details()->PackFrom(info);
  return error;
}

std::string SignalText(int signal) {
  const char* name = sigabbrev_np(signal);
  const char* text = sigdescr_np(signal);
  if (name == nullptr) return absl::StrCat("signal ", signal);
  return absl::StrCat("SIG", name, text == nullptr ? "" : absl::StrCat(" (", text, ")"));
}

// The worker ended and nobody knows with what result.
EndDecision AfterDeath(const WorkerEnd& end) {
  EndDecision decision;
  decision.worker_died = true;
  decision.message = DescribeExit(end);
  if (end.state == v1::JOB_STATE_CANCELLING) {
    decision.state = v1::JOB_STATE_CANCELLED;
    absl::StrAppend(&decision.message, " while cancelling; its last steps may not be saved");
    return decision;
  }
  decision.error = ServerError(decision.message);
  decision.failure_class = v1::FAILURE_CLASS_SERVER;
  const int32_t deaths = end.worker_deaths + 1;
  if (deaths < end.max_attempts) {
    decision.state = v1::JOB_STATE_QUEUED;
    decision.reason = v1::STATE_REASON_WORKER_DIED;
    absl::StrAppend(&decision.message, "; attempt ", deaths + 1, " of ", end.max_attempts,
                    " is queued");
    return decision;
  }
  decision.state = v1::JOB_STATE_FAILED;
  decision.reason = v1::STATE_REASON_WORKER_DIED;
  if (end.max_attempts > 1) {
    absl::StrAppend(&decision.message, "; no attempts are left of ", end.max_attempts);
  }
  return decision;
}

}  // namespace

ScheduleDecision Schedule(const ScheduleSnapshot& snapshot) {
  ScheduleDecision decision;
  Resources left = Unused(snapshot);
  const QueuedJob* waits_for_memory = nullptr;
  for (const QueuedJob& job : snapshot.queued) {
    if (snapshot.admission == Admission::kDraining) {
      decision.waits.push_back({job.name, v1::STATE_REASON_DRAINING,
                                "the daemon is draining; the next one starts the job"});
    } else if (!LaneIsFree(left, job.lane)) {
      decision.waits.push_back(WaitForLane(left, job));
    } else if (waits_for_memory != nullptr) {
      decision.waits.push_back(
          {job.name, v1::STATE_REASON_HOST_MEMORY,
           absl::StrCat("waits behind ", waits_for_memory->name, ", which waits for host memory")});
    } else if (job.host_bytes > snapshot.host_memory_bytes - left.reserved_bytes) {
      decision.waits.push_back(WaitForMemory(left, job, snapshot.host_memory_bytes));
      waits_for_memory = &job;
    } else {
      Start start{.name = job.name, .device = {}};
      left.reserved_bytes += job.host_bytes;
      if (job.lane == Lane::kExport) {
        left.export_holder = job.name;
      } else {
        start.device = left.free_devices.front();
        left.free_devices.erase(left.free_devices.begin());
        left.device_holder = job.name;
      }
      decision.starts.push_back(std::move(start));
    }
  }
  return decision;
}

std::string DescribeExit(const WorkerEnd& end) {
  if (end.kill_cause == KillCause::kSilence) {
    return absl::StrCat("worker killed by penstockd: it reported nothing for ", end.silence_seconds,
                        " s");
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
  for (const auto& detail : error.details()) {
    google::rpc::ErrorInfo info;
    if (detail.UnpackTo(&info) && info.reason() == reason::kDataInvalid) {
      return v1::FAILURE_CLASS_DATA;
    }
  }
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
  if (!end.outcome) return AfterDeath(end);
  EndDecision decision;
  switch (end.outcome->result()) {
    case internal::ATTEMPT_RESULT_SUCCEEDED:
      decision.state = v1::JOB_STATE_SUCCEEDED;
      return decision;
    case internal::ATTEMPT_RESULT_FAILED:
      decision.state = v1::JOB_STATE_FAILED;
      decision.error = end.outcome->error();
      decision.message = decision.error.message();
      decision.failure_class = ClassifyFailure(decision.error);
      return decision;
    case internal::ATTEMPT_RESULT_CANCELLED:
      if (end.state == v1::JOB_STATE_CANCELLING) {
        decision.state = v1::JOB_STATE_CANCELLED;
        decision.reason = v1::STATE_REASON_CANCEL_REQUESTED;
        return decision;
      }
      break;  // It stopped though no one asked the daemon: somebody signalled it.
    default:
      break;
  }
  return AfterDeath(end);
}

ReconcileDecision Reconcile(const ReconcileSnapshot& snapshot) {
  ReconcileDecision decision;
  decision.kill_holder = snapshot.lock == LockFacts::kHeldByOlderAttempt;
  if (snapshot.state == v1::JOB_STATE_QUEUED) return decision;
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
