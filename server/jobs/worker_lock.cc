#include "server/jobs/worker_lock.h"

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/lock_file.h"

namespace penstock::server {

absl::StatusOr<WorkerLockView> ExamineWorkerLock(const std::string& path, int32_t attempt) {
  constexpr int kTries = 500;
  for (int i = 0; i < kTries; ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string> held, LockHolder(path));
    const std::optional<WorkerLockContents> contents =
        ParseWorkerLock(held ? *held : LockContents(path));
    WorkerLockView view;
    view.started = contents && contents->attempt == attempt;
    if (!held) return view;
    if (contents) {
      // The file may still name the previous holder; then that process is gone.
      absl::StatusOr<ProcessHandle> process = ProcessHandle::Adopt(contents->process);
      if (process.ok()) {
        view.facts = view.started ? LockFacts::kHeldByThisAttempt : LockFacts::kHeldByOlderAttempt;
        view.holder = *std::move(process);
        return view;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return Error(absl::StatusCode::kUnavailable, reason::kLockHeld,
               absl::StrCat(path,
                            " is locked by a process that does not say which it is; find it "
                            "with fuser and end it"),
               {{"file", path}});
}

}  // namespace penstock::server
