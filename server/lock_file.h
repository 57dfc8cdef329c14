// A file that at most one process holds, with a line inside that says who. penstockd holds
// penstockd.lock for its state directory; a worker holds jobs/{id}/worker.lock for its job.
//
// The lock is an OFD lock (fcntl F_OFD_SETLK): it ends with the process however that ends, so a
// stale file means nothing and nothing has to clean up. The file is never removed: removing a
// lock file lets two processes hold "the" lock on two inodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock::server {

// Names one process for as long as the machine runs.
struct ProcessIdentity {
  int32_t pid = 0;
  uint64_t start_ticks = 0;  // field 22 of /proc/{pid}/stat

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};
ProcessIdentity SelfIdentity();
// What /proc says of `pid` now; nothing if there is no such process.
std::optional<ProcessIdentity> IdentityOf(int32_t pid);

class LockFile {
 public:
  // Takes the lock and replaces the contents. FailedPrecondition / LOCK_HELD, with metadata
  // "holder" (the contents), if another process has it.
  static absl::StatusOr<LockFile> Acquire(const std::string& path, const std::string& contents);

  LockFile(LockFile&& other) noexcept;
  LockFile& operator=(LockFile&& other) noexcept;
  ~LockFile();

 private:
  explicit LockFile(int fd) : fd_(fd) {}
  int fd_ = -1;
};

// The contents, if some process holds the lock now; nothing if nobody does or there is no file.
// The contents may be empty for the moment between taking the lock and writing them.
absl::StatusOr<std::optional<std::string>> LockHolder(const std::string& path);

// What the file says, held or not; empty if there is none.
std::string LockContents(const std::string& path);

// Contents of worker.lock: "pid=12 start_ticks=345 attempt=6\n".
struct WorkerLockContents {
  ProcessIdentity process;
  int32_t attempt = 0;
};
std::string FormatWorkerLock(const WorkerLockContents& contents);
// Nothing if `text` is not of that form.
std::optional<WorkerLockContents> ParseWorkerLock(const std::string& text);

}  // namespace penstock::server
