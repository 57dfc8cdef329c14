#include "tests/engine/train/fault_files.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdarg>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace penstock::testing {
namespace {

struct Watch {
  std::mutex mutex;
  std::string directory;  // empty: nothing is watched
  FileFault fault;
  std::vector<FileCall> calls;
};

Watch& TheWatch() {
  static Watch* watch = new Watch;  // used by whatever runs after main()
  return *watch;
}

std::string ReadLink(const std::string& path) {
  std::array<char, PATH_MAX> buffer;
  const ssize_t size = readlink(path.c_str(), buffer.data(), buffer.size());
  return size > 0 ? std::string(buffer.data(), static_cast<size_t>(size)) : "";
}

std::string PathOfDescriptor(int fd) { return ReadLink(absl::StrCat("/proc/self/fd/", fd)); }

std::string AbsolutePath(int directory_fd, const char* name) {
  if (name[0] == '/') return name;
  return absl::StrCat(
      directory_fd == AT_FDCWD ? ReadLink("/proc/self/cwd") : PathOfDescriptor(directory_fd), "/",
      name);
}

// Nothing for what is not the directory or in it.
std::optional<std::string> RelativePath(const std::string& directory, absl::string_view path) {
  if (directory.empty() || !absl::ConsumePrefix(&path, directory)) return std::nullopt;
  if (!path.empty() && !absl::ConsumePrefix(&path, "/")) return std::nullopt;
  return std::string(path);
}

[[noreturn]] void Die() {
  syscall(SYS_kill, getpid(), SIGKILL);
  while (true) pause();
}

// Does `call`, or what the fault makes of it. `perform(share)` makes the system call for 1/share of
// the data and gives its result; what it did is then recorded.
long Intercept(FileCall call, const std::function<long(int share)>& perform) {
  Watch& watch = TheWatch();
  std::unique_lock lock(watch.mutex);
  const std::optional<std::string> path = RelativePath(watch.directory, call.path);
  if (!path) {
    lock.unlock();
    return perform(1);
  }
  if (watch.fault.kind == FileFault::Kind::kSlow &&
      static_cast<int64_t>(watch.calls.size()) >= watch.fault.at) {
    const std::chrono::milliseconds pause(watch.fault.milliseconds);
    lock.unlock();
    std::this_thread::sleep_for(pause);
    lock.lock();
  }
  call.path = *path;
  call.target = RelativePath(watch.directory, call.target).value_or("");
  const auto number = static_cast<int64_t>(watch.calls.size());
  using Kind = FileFault::Kind;
  const FileFault& fault = watch.fault;
  const bool hit = number == fault.at || (fault.kind == Kind::kFailAlways && number > fault.at);
  const Kind kind = hit ? fault.kind : Kind::kNone;
  if (kind == Kind::kKill) Die();
  if (kind == Kind::kFail || kind == Kind::kFailAlways) {
    call.done = false;
    watch.calls.push_back(std::move(call));
    errno = fault.error;
    return -1;
  }
  const bool halve = call.kind == FileCall::Kind::kWrite && call.data.size() > 1 &&
                     (kind == Kind::kTear || kind == Kind::kShorten);
  const long result = perform(halve ? 2 : 1);
  if (kind == Kind::kTear) Die();
  const int error = errno;
  call.done = result >= 0;
  if (call.done && call.kind == FileCall::Kind::kWrite) {
    call.data.resize(static_cast<size_t>(result));
  }
  watch.calls.push_back(std::move(call));
  errno = error;
  return result;
}

long Create(int directory_fd, const char* name, int flags, mode_t mode) {
  const auto perform = [&](int) { return syscall(SYS_openat, directory_fd, name, flags, mode); };
  struct stat info {};
  const bool exists = syscall(SYS_newfstatat, directory_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
  if ((flags & O_CREAT) == 0 || exists) return perform(1);
  return Intercept({.kind = FileCall::Kind::kCreate, .path = AbsolutePath(directory_fd, name)},
                   perform);
}

long Write(int fd, const void* data, size_t size, std::optional<off_t> offset) {
  const auto perform = [&](int share) {
    return offset ? syscall(SYS_pwrite64, fd, data, size / static_cast<size_t>(share), *offset)
                  : syscall(SYS_write, fd, data, size / static_cast<size_t>(share));
  };
  if (fd <= STDERR_FILENO) return perform(1);
  const off_t at = offset ? *offset : lseek(fd, 0, SEEK_CUR);
  return Intercept({.kind = FileCall::Kind::kWrite,
                    .path = PathOfDescriptor(fd),
                    .data = std::string(static_cast<const char*>(data), size),
                    .offset = at},
                   perform);
}

ssize_t Read(int fd, void* data, size_t size, off_t offset) {
  Watch& watch = TheWatch();
  {
    std::lock_guard lock(watch.mutex);
    if (watch.fault.kind == FileFault::Kind::kFailReads &&
        RelativePath(watch.directory, PathOfDescriptor(fd)) == watch.fault.path) {
      errno = watch.fault.error;
      return -1;
    }
  }
  return syscall(SYS_pread64, fd, data, size, offset);
}

long Rename(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) {
  return Intercept(
      {.kind = (flags & RENAME_EXCHANGE) != 0 ? FileCall::Kind::kExchange : FileCall::Kind::kRename,
       .path = AbsolutePath(from_fd, from),
       .target = AbsolutePath(to_fd, to)},
      [&](int) { return syscall(SYS_renameat2, from_fd, from, to_fd, to, flags); });
}

long MakeDirectory(int directory_fd, const char* name, mode_t mode) {
  return Intercept(
      {.kind = FileCall::Kind::kMakeDirectory, .path = AbsolutePath(directory_fd, name)},
      [&](int) { return syscall(SYS_mkdirat, directory_fd, name, mode); });
}

long Remove(int directory_fd, const char* name, int flags) {
  return Intercept({.kind = FileCall::Kind::kRemove, .path = AbsolutePath(directory_fd, name)},
                   [&](int) { return syscall(SYS_unlinkat, directory_fd, name, flags); });
}

}  // namespace

void StartFileFaults(const std::string& directory, const FileFault& fault) {
  Watch& watch = TheWatch();
  std::lock_guard lock(watch.mutex);
  watch.directory = directory;
  watch.fault = fault;
  watch.calls.clear();
}

std::vector<FileCall> StopFileFaults() {
  Watch& watch = TheWatch();
  std::lock_guard lock(watch.mutex);
  watch.directory.clear();
  return std::exchange(watch.calls, {});
}

int64_t FileCallsSoFar() {
  Watch& watch = TheWatch();
  std::lock_guard lock(watch.mutex);
  return static_cast<int64_t>(watch.calls.size());
}

}  // namespace penstock::testing

// What the dynamic linker finds before libc's.
extern "C" {

using penstock::testing::FileCall;

int openat(int directory_fd, const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return static_cast<int>(penstock::testing::Create(directory_fd, name, flags, mode));
}

int open(const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return static_cast<int>(penstock::testing::Create(AT_FDCWD, name, flags, mode));
}

ssize_t write(int fd, const void* data, size_t size) {
  return penstock::testing::Write(fd, data, size, std::nullopt);
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return penstock::testing::Write(fd, data, size, offset);
}

ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  return penstock::testing::Read(fd, data, size, offset);
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
  return static_cast<int>(penstock::testing::Intercept(
      {.kind = FileCall::Kind::kReserve, .path = penstock::testing::PathOfDescriptor(fd)},
      [&](int) { return syscall(SYS_fallocate, fd, mode, offset, size); }));
}

int fsync(int fd) {
  return static_cast<int>(penstock::testing::Intercept(
      {.kind = FileCall::Kind::kSync, .path = penstock::testing::PathOfDescriptor(fd)},
      [](int) { return 0L; }));
}

int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(penstock::testing::Rename(AT_FDCWD, from, AT_FDCWD, to, 0));
}

int renameat(int from_fd, const char* from, int to_fd, const char* to) noexcept {
  return static_cast<int>(penstock::testing::Rename(from_fd, from, to_fd, to, 0));
}

int renameat2(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) noexcept {
  return static_cast<int>(penstock::testing::Rename(from_fd, from, to_fd, to, flags));
}

int mkdir(const char* name, mode_t mode) noexcept {
  return static_cast<int>(penstock::testing::MakeDirectory(AT_FDCWD, name, mode));
}

int mkdirat(int directory_fd, const char* name, mode_t mode) noexcept {
  return static_cast<int>(penstock::testing::MakeDirectory(directory_fd, name, mode));
}

int unlink(const char* name) noexcept {
  return static_cast<int>(penstock::testing::Remove(AT_FDCWD, name, 0));
}

int unlinkat(int directory_fd, const char* name, int flags) noexcept {
  return static_cast<int>(penstock::testing::Remove(directory_fd, name, flags));
}

}  // extern "C"
