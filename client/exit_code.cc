#include "client/exit_code.h"

#include <map>
#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "server/reasons.h"

namespace penstock::client {

ExitCode ExitCodeOf(const absl::Status& status) {
  static const auto& by_reason = *new std::map<std::string_view, ExitCode>{
      {reason::kSpecInvalid, ExitCode::kBadSpec},
      {reason::kFeatureUnsupported, ExitCode::kBadSpec},
      {reason::kModelInvalid, ExitCode::kBadSpec},
      {reason::kModelUnsupported, ExitCode::kBadSpec},
      {reason::kDataInvalid, ExitCode::kBadSpec},
      {reason::kOutputExists, ExitCode::kBadSpec},
      {reason::kPathNotAllowed, ExitCode::kPermission},
      {reason::kHostMemoryInsufficient, ExitCode::kNeverFits},
      {reason::kDeviceMemoryInsufficient, ExitCode::kNeverFits},
      {reason::kDiskInsufficient, ExitCode::kNeverFits},
      {reason::kDeviceUnavailable, ExitCode::kFailed},
      {reason::kDeviceFailed, ExitCode::kFailed},
      {reason::kQueueFull, ExitCode::kTryAgain},
      {reason::kTooManyStreams, ExitCode::kTryAgain},
      {reason::kQuotaExceeded, ExitCode::kTryAgain},
      {reason::kRateLimited, ExitCode::kTryAgain},
      {reason::kServerDraining, ExitCode::kTryAgain},
      {reason::kLockHeld, ExitCode::kTryAgain},
      {reason::kRequestInvalid, ExitCode::kUsage},
      {reason::kUploadLimit, ExitCode::kNeverFits},
      {reason::kUploadCorrupt, ExitCode::kFailed},
  };
  if (const auto found = by_reason.find(ReasonOf(status)); found != by_reason.end()) {
    return found->second;
  }
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kUnavailable:
      return ExitCode::kUnreachable;
    case absl::StatusCode::kNotFound:
      return ExitCode::kNotFound;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return ExitCode::kPermission;
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kTimedOut;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kOutOfRange:
      return ExitCode::kFailed;
    default:
      return ExitCode::kInternal;
  }
}

ExitCode ExitCodeOf(const v1::Job& job) {
  switch (job.state()) {
    case v1::JOB_STATE_SUCCEEDED:
      return ExitCode::kOk;
    case v1::JOB_STATE_CANCELLED:
      return ExitCode::kCancelled;
    case v1::JOB_STATE_FAILED:
      return job.failure_class() == v1::FAILURE_CLASS_SERVER ? ExitCode::kInternal
                                                             : ExitCode::kFailed;
    default:
      return ExitCode::kInternal;
  }
}

const char* ExitCodeHelp() {
  return "Exit codes:\n"
         "  0   all succeeded\n"
         "  1   the job failed, or the call was refused\n"
         "  2   usage\n"
         "  3   no daemon answers\n"
         "  4   no such job or checkpoint\n"
         "  5   permission: a path outside the allowed roots, someone else's socket\n"
         "  6   more memory or disk than there is: can never fit\n"
         "  10  the job was cancelled\n"
         "  70  a worker crashed, or a bug in Penstock\n"
         "  75  stopped or refused for now, work is left: requeue\n"
         "  78  spec, model or data are wrong: do not retry unchanged\n"
         "  124 a call took longer than --timeout\n"
         "  130 interrupted while following: the job goes on\n";
}

}  // namespace penstock::client
