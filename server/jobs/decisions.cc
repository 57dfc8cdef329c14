#include "server/jobs/decisions.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "google/rpc/error_details.pb.h"

namespace penstock::server {
namespace {

// What is left to give while Schedule() goes through the queue.
struct Resources {
  // By device: who has it.
  std::map<std::string, std::string> holders;
  std::string export_holder;
  int64_t reserved_bytes = 0;
};

Resources Unused(const ScheduleSnapshot& snapshot) {
  Resources left;
  for (const RunningJob& job : snapshot.running) {
    left.reserved_bytes += job.host_bytes;
    if (job.lane == Lane::kExport) {
      left.export_holder = job.name;
    } else {
      left.holders[job.device] = job.name;
    }
  }
  return left;
}

// The smallest free device that the job can run on, or null.
const ScheduleDevice* FreeDevice(const ScheduleSnapshot& snapshot, const Resources& left,
                                 const DeviceNeed& need) {
  const ScheduleDevice* best = nullptr;
  for (const ScheduleDevice& device : snapshot.devices) {
    if (!CanRunOn(need, device) || left.holders.contains(device.id)) continue;
    if (best == nullptr || device.job_bytes < best->job_bytes) best = &device;
  }
  return best;
}

// Why none of the devices will do, each with what is wrong with it.
std::string WhyNone(const ScheduleSnapshot& snapshot, const DeviceNeed& need) {
  std::string why;
  for (const ScheduleDevice& device : snapshot.devices) {
    if (device.kind != need.kind || (!need.uuid.empty() && device.id != need.uuid)) continue;
    std::string problem = device.health_message;
    if (std::find(need.failed.begin(), need.failed.end(), device.id) != need.failed.end()) {
      problem = "failed under this job";
    } else if (problem.empty()) {
      problem = absl::StrCat("has ", FormatBytes(device.job_bytes), " for a job, this one needs ",
                             FormatBytes(need.bytes));
    }
    absl::StrAppend(&why, why.empty() ? "" : "; ", device.id, ": ", problem);
  }
  return why.empty() ? "this daemon has no such device" : why;
}

Wait WaitForDevice(const ScheduleSnapshot& snapshot, const Resources& left, const QueuedJob& job) {
  std::string holders;
  for (const ScheduleDevice& device : snapshot.devices) {
    if (!CanRunOn(job.device, device)) continue;
    absl::StrAppend(&holders, holders.empty() ? "" : ", ", device.id, ", which ",
                    left.holders.at(device.id), " has");
  }
  if (holders.empty()) {
    return {job.name, v1::STATE_REASON_DEVICE_UNAVAILABLE,
            absl::StrCat("no device can run it now: ", WhyNone(snapshot, job.device))};
  }
  return {job.name, v1::STATE_REASON_DEVICE_BUSY, absl::StrCat("waits for ", holders)};
}

Wait WaitForExports(const Resources& left, const QueuedJob& job) {
  return {job.name, v1::STATE_REASON_DEVICE_BUSY,
          absl::StrCat("waits for ", left.export_holder, ": exports run one at a time")};
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

// Whether it died by what another attempt would meet again: not by a kill from outside.
bool DiedOfItself(const WorkerEnd& end) {
  if (end.kill_cause == KillCause::kSilence || end.out_of_memory_kill) return true;
  return end.exit.kind == ExitKind::kExited ||
         (end.exit.kind == ExitKind::kSignalled && end.exit.code != SIGKILL);
}

bool DiedTheSameWayTwice(const WorkerEnd& end) {
  return DiedOfItself(end) && !end.saved_checkpoint && end.last_death.attempt() > 0 &&
         end.last_death.step() == end.step && end.last_death.cause() == DescribeExit(end);
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
  decision.reason = v1::STATE_REASON_WORKER_DIED;
  const int32_t deaths = (end.saved_checkpoint ? 0 : end.worker_deaths) + 1;
  decision.worker_deaths = deaths;
  if (DiedTheSameWayTwice(end)) {
    absl::StrAppend(&decision.message, " after step ", end.step,
                    ", as the attempt before it: another one would do the same");
  } else if (deaths < end.max_attempts) {
    decision.state = v1::JOB_STATE_QUEUED;
    absl::StrAppend(&decision.message, "; attempt ", deaths + 1, " of ", end.max_attempts,
                    " since the last new checkpoint is queued");
  } else if (end.max_attempts > 1) {
    absl::StrAppend(&decision.message, "; no attempts are left of ", end.max_attempts,
                    " since the last new checkpoint");
  }
  return decision;
}

google::rpc::ErrorInfo InfoOf(const google::rpc::Status& error) {
  google::rpc::ErrorInfo info;
  for (const auto& detail : error.details()) {
    if (detail.UnpackTo(&info)) return info;
  }
  return info;
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

}  // namespace

bool CanRunOn(const DeviceNeed& need, const ScheduleDevice& device) {
  return device.kind == need.kind && device.health == v1::DEVICE_HEALTH_HEALTHY &&
         (need.uuid.empty() || device.id == need.uuid) &&
         (need.kind == v1::DEVICE_KIND_CPU || need.bytes <= device.job_bytes) &&
         std::find(need.failed.begin(), need.failed.end(), device.id) == need.failed.end();
}

ScheduleDecision Schedule(const ScheduleSnapshot& snapshot) {
  ScheduleDecision decision;
  Resources left = Unused(snapshot);
  const QueuedJob* waits_for_memory = nullptr;
  for (const QueuedJob& job : snapshot.queued) {
    const ScheduleDevice* const device =
        job.lane == Lane::kDevice ? FreeDevice(snapshot, left, job.device) : nullptr;
    if (snapshot.admission == Admission::kDraining) {
      decision.waits.push_back({job.name, v1::STATE_REASON_DRAINING,
                                "the daemon is draining; the next one starts the job"});
    } else if (job.lane == Lane::kExport && !left.export_holder.empty()) {
      decision.waits.push_back(WaitForExports(left, job));
    } else if (job.lane == Lane::kDevice && device == nullptr) {
      decision.waits.push_back(WaitForDevice(snapshot, left, job));
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
        start.device = device->id;
        left.holders[device->id] = job.name;
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
  if (!end.outcome) return AfterDeath(end);
  EndDecision decision;
  decision.worker_deaths = end.worker_deaths;
  switch (end.outcome->result()) {
    case internal::ATTEMPT_RESULT_SUCCEEDED:
      decision.state = v1::JOB_STATE_SUCCEEDED;
      return decision;
    case internal::ATTEMPT_RESULT_FAILED:
      decision.state = v1::JOB_STATE_FAILED;
      decision.error = end.outcome->error();
      decision.message = decision.error.message();
      if (InfoOf(decision.error).reason() == reason::kDeviceFailed) {
        return AfterDeviceFailure(end, std::move(decision));
      }
      decision.failure_class = ClassifyFailure(decision.error);
      return decision;
    case internal::ATTEMPT_RESULT_CANCELLED:
      if (end.state == v1::JOB_STATE_CANCELLING) {
        decision.state = v1::JOB_STATE_CANCELLED;
        decision.reason = v1::STATE_REASON_CANCEL_REQUESTED;
        return decision;
      }
      // No one asked the daemon: somebody signalled the worker.
      decision.state = v1::JOB_STATE_QUEUED;
      decision.reason = v1::STATE_REASON_WORKER_STOPPED;
      decision.message = "a signal told the worker to stop; the job goes on where it did";
      return decision;
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
