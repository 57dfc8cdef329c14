// Status plumbing: the two macros, and errors that carry a machine-readable reason.
//
// Every error that can reach a user is made by Error(): a code for the kind of remedy, a
// Reason for programs, a message for people. A message names the thing, what was found,
// what was wanted, and the way out. The reason and its metadata travel as payloads of the
// absl::Status, so the engine needs no protobuf; server/ turns them into
// google.rpc.ErrorInfo (server/rpc/grpc_status.h).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define PENSTOCK_CONCAT_INNER(a, b) a##b
#define PENSTOCK_CONCAT(a, b) PENSTOCK_CONCAT_INNER(a, b)

#define PENSTOCK_RETURN_IF_ERROR(expr)                                                        \
  do {                                                                                        \
    if (absl::Status penstock_status = (expr); !penstock_status.ok()) return penstock_status; \
  } while (false)

#define PENSTOCK_ASSIGN_OR_RETURN(lhs, expr) \
  PENSTOCK_ASSIGN_OR_RETURN_IMPL(PENSTOCK_CONCAT(penstock_or_, __LINE__), lhs, expr)
#define PENSTOCK_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                   \
  if (!tmp.ok()) return std::move(tmp).status();       \
  lhs = *std::move(tmp)

namespace penstock {

// Reasons are API: docs/errors.md lists each with its code and remedy; none is ever removed.
namespace reason {
inline constexpr std::string_view kSpecInvalid = "SPEC_INVALID";
inline constexpr std::string_view kFeatureUnsupported = "FEATURE_UNSUPPORTED";
inline constexpr std::string_view kModelInvalid = "MODEL_INVALID";
inline constexpr std::string_view kModelUnsupported = "MODEL_UNSUPPORTED";
inline constexpr std::string_view kDataInvalid = "DATA_INVALID";
inline constexpr std::string_view kPathNotAllowed = "PATH_NOT_ALLOWED";
inline constexpr std::string_view kHostMemoryInsufficient = "HOST_MEMORY_INSUFFICIENT";
inline constexpr std::string_view kDeviceMemoryInsufficient = "DEVICE_MEMORY_INSUFFICIENT";
inline constexpr std::string_view kDiskInsufficient = "DISK_INSUFFICIENT";
inline constexpr std::string_view kDeviceUnavailable = "DEVICE_UNAVAILABLE";
inline constexpr std::string_view kDeviceFailed = "DEVICE_FAILED";
inline constexpr std::string_view kOutputExists = "OUTPUT_EXISTS";
inline constexpr std::string_view kCheckpointCorrupt = "CHECKPOINT_CORRUPT";
inline constexpr std::string_view kCheckpointMismatch = "CHECKPOINT_MISMATCH";
inline constexpr std::string_view kNonFinite = "NON_FINITE";
inline constexpr std::string_view kIoError = "IO_ERROR";
inline constexpr std::string_view kRequestInvalid = "REQUEST_INVALID";
inline constexpr std::string_view kJobNotFound = "JOB_NOT_FOUND";
inline constexpr std::string_view kJobExists = "JOB_EXISTS";
inline constexpr std::string_view kJobStateConflict = "JOB_STATE_CONFLICT";
inline constexpr std::string_view kCheckpointNotFound = "CHECKPOINT_NOT_FOUND";
inline constexpr std::string_view kCheckpointInUse = "CHECKPOINT_IN_USE";
inline constexpr std::string_view kRequestIdReused = "REQUEST_ID_REUSED";
inline constexpr std::string_view kQueueFull = "QUEUE_FULL";
inline constexpr std::string_view kTooManyStreams = "TOO_MANY_STREAMS";
inline constexpr std::string_view kCursorExpired = "CURSOR_EXPIRED";
inline constexpr std::string_view kServerDraining = "SERVER_DRAINING";
inline constexpr std::string_view kCallCancelled = "CALL_CANCELLED";
inline constexpr std::string_view kCallTimedOut = "CALL_TIMED_OUT";
inline constexpr std::string_view kStaleAttempt = "STALE_ATTEMPT";
inline constexpr std::string_view kWorkerDied = "WORKER_DIED";
inline constexpr std::string_view kLockHeld = "LOCK_HELD";
inline constexpr std::string_view kStoreCorrupt = "STORE_CORRUPT";
inline constexpr std::string_view kConfigInvalid = "CONFIG_INVALID";
inline constexpr std::string_view kServerUnreachable = "SERVER_UNREACHABLE";
inline constexpr std::string_view kProfileInvalid = "PROFILE_INVALID";
inline constexpr std::string_view kDeviceBusy = "DEVICE_BUSY";
inline constexpr std::string_view kInternal = "INTERNAL";
}  // namespace reason

using ErrorMetadata = std::map<std::string, std::string>;

absl::Status Error(absl::StatusCode code, std::string_view reason, std::string_view message,
                   const ErrorMetadata& metadata = {});

// The reason given to Error(), or kInternal for a status that has none.
std::string ReasonOf(const absl::Status& status);
ErrorMetadata MetadataOf(const absl::Status& status);

// Same code and payloads, message prefixed with "context: ".
absl::Status Annotate(absl::Status status, std::string_view context);

}  // namespace penstock
