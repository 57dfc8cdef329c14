// Who has a job's worker.lock, for a daemon that has just started.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/jobs/decisions.h"
#include "server/jobs/process.h"

namespace penstock::server {

struct WorkerLockView {
  LockFacts facts = LockFacts::kFree;
  bool started = false;  // the file names `attempt`, held or not
  std::optional<ProcessHandle> holder;
};
// Waits a moment for a holder that has the lock and has not yet written who it is. Unavailable if
// it never does.
absl::StatusOr<WorkerLockView> ExamineWorkerLock(const std::string& path, int32_t attempt);

}  // namespace penstock::server
