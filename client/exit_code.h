// What `penstock` exits with. Scripts and batch schedulers rely on these: documented in
// `penstock --help` and docs/cli.md, never reused for another meaning.
#pragma once

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"

namespace penstock::client {

enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,         // the job failed (spec, data or resources), or the call was refused
  kUsage = 2,          // the command line
  kUnreachable = 3,    // no daemon answers
  kNotFound = 4,       // no such job or checkpoint
  kPermission = 5,     // a path outside the allowed roots, a socket that is not yours
  kNeverFits = 6,      // more memory or disk than there is
  kCancelled = 10,     // the job was cancelled
  kInternal = 70,      // a worker crashed, or a bug in Penstock
  kTryAgain = 75,      // stopped or refused for now, work is left: requeue
  kBadSpec = 78,       // the spec, the model or the data are wrong: do not retry unchanged
  kTimedOut = 124,     // a call took longer than --timeout
  kInterrupted = 130,  // Ctrl-C while following: the job goes on
};

// By reason first, then by code. REQUIRES: !status.ok().
ExitCode ExitCodeOf(const absl::Status& status);
// REQUIRES: the job has ended.
ExitCode ExitCodeOf(const v1::Job& job);

// The table for --help.
const char* ExitCodeHelp();

}  // namespace penstock::client
