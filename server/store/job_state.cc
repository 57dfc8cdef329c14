#include "server/store/job_state.h"

#include "absl/strings/strip.h"

namespace penstock::server {

bool CanMove(v1::JobState from, v1::JobState to) {
  switch (from) {
    case v1::JOB_STATE_QUEUED:
      return to == v1::JOB_STATE_STARTING || to == v1::JOB_STATE_PAUSED ||
             to == v1::JOB_STATE_CANCELLED || to == v1::JOB_STATE_FAILED;
    case v1::JOB_STATE_STARTING:
      return to == v1::JOB_STATE_RUNNING || CanMove(v1::JOB_STATE_RUNNING, to);
    case v1::JOB_STATE_RUNNING:
      return IsStopping(to) || to == v1::JOB_STATE_QUEUED || to == v1::JOB_STATE_SUCCEEDED ||
             to == v1::JOB_STATE_FAILED;
    case v1::JOB_STATE_CANCELLING:
      return IsFinal(to);
    case v1::JOB_STATE_PAUSING:
      return to == v1::JOB_STATE_PAUSED || to == v1::JOB_STATE_CANCELLING ||
             to == v1::JOB_STATE_SUCCEEDED || to == v1::JOB_STATE_FAILED;
    case v1::JOB_STATE_YIELDING:
      return to == v1::JOB_STATE_QUEUED || to == v1::JOB_STATE_PAUSING ||
             to == v1::JOB_STATE_CANCELLING || to == v1::JOB_STATE_SUCCEEDED ||
             to == v1::JOB_STATE_FAILED;
    case v1::JOB_STATE_PAUSED:
      return to == v1::JOB_STATE_QUEUED || to == v1::JOB_STATE_CANCELLED ||
             to == v1::JOB_STATE_FAILED;
    case v1::JOB_STATE_FAILED:
    case v1::JOB_STATE_CANCELLED:
      return to == v1::JOB_STATE_QUEUED;
    default:
      return false;
  }
}

bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

bool IsStopping(v1::JobState state) {
  return state == v1::JOB_STATE_CANCELLING || state == v1::JOB_STATE_PAUSING ||
         state == v1::JOB_STATE_YIELDING;
}

bool HasWorker(v1::JobState state) {
  return state == v1::JOB_STATE_STARTING || state == v1::JOB_STATE_RUNNING || IsStopping(state);
}

std::string StateName(v1::JobState state) {
  return std::string(absl::StripPrefix(v1::JobState_Name(state), "JOB_STATE_"));
}

}  // namespace penstock::server
