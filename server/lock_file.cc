#include "server/lock_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"

namespace penstock::server {
namespace {

constexpr size_t kMaxContents = 4096;

struct flock WholeFile(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

std::string ReadContents(int fd) {
  std::string contents(kMaxContents, '\0');
  const ssize_t got = pread(fd, contents.data(), contents.size(), 0);
  contents.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return contents;
}

absl::Status IoError(const std::string& path, const char* what) {
  const int error = errno;
  const bool full = error == ENOSPC || error == EDQUOT;
  return Error(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable,
               full ? reason::kDiskInsufficient : reason::kIoError,
               absl::StrCat(path, ": ", what, ": ", std::strerror(error)), {{"file", path}});
}

}  // namespace

std::optional<ProcessIdentity> IdentityOf(int32_t pid) {
  const int fd = open(absl::StrCat("/proc/", pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  const std::string stat = ReadContents(fd);
  close(fd);
  // The second field is the name in parentheses and may hold anything; count from the last ')'.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(name_end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kStartTicks = 22 - 3;  // fields[0] is field 3
  ProcessIdentity identity{.pid = pid};
  if (fields.size() <= kStartTicks ||
      !absl::SimpleAtoi(fields[kStartTicks], &identity.start_ticks)) {
    return std::nullopt;
  }
  return identity;
}

ProcessIdentity SelfIdentity() {
  return IdentityOf(getpid()).value_or(ProcessIdentity{.pid = getpid()});
}

absl::StatusOr<LockFile> LockFile::Acquire(const std::string& path, const std::string& contents) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return IoError(path, "cannot open the lock file");
  LockFile lock(fd);
  struct flock whole = WholeFile(F_WRLCK);
  if (fcntl(fd, F_OFD_SETLK, &whole) != 0) {
    if (errno != EAGAIN && errno != EACCES) return IoError(path, "cannot lock");
    const std::string holder = ReadContents(fd);
    return Error(absl::StatusCode::kFailedPrecondition, reason::kLockHeld,
                 absl::StrCat(path, " is held by another process: ", holder),
                 {{"file", path}, {"holder", holder}});
  }
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, contents.data(), contents.size(), 0) != static_cast<ssize_t>(contents.size())) {
    return IoError(path, "cannot write the lock file");
  }
  return lock;
}

LockFile::LockFile(LockFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
LockFile& LockFile::operator=(LockFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
LockFile::~LockFile() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::optional<std::string>> LockHolder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    if (errno == ENOENT) return std::nullopt;
    return IoError(path, "cannot open the lock file");
  }
  struct flock whole = WholeFile(F_WRLCK);
  const int result = fcntl(fd, F_OFD_GETLK, &whole);
  std::optional<std::string> holder;
  if (result == 0 && whole.l_type != F_UNLCK) holder = ReadContents(fd);
  close(fd);
  if (result != 0) return IoError(path, "cannot query the lock");
  return holder;
}

std::string LockContents(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return "";
  std::string contents = ReadContents(fd);
  close(fd);
  return contents;
}

std::string FormatWorkerLock(const WorkerLockContents& contents) {
  return absl::StrCat("pid=", contents.process.pid, " start_ticks=", contents.process.start_ticks,
                      " attempt=", contents.attempt, "\n");
}

std::optional<WorkerLockContents> ParseWorkerLock(const std::string& text) {
  WorkerLockContents contents;
  if (std::sscanf(text.c_str(), "pid=%" SCNd32 " start_ticks=%" SCNu64 " attempt=%" SCNd32,
                  &contents.process.pid, &contents.process.start_ticks, &contents.attempt) != 3 ||
      contents.process.pid <= 1 || contents.attempt < 1) {
    return std::nullopt;
  }
  return contents;
}

}  // namespace penstock::server
