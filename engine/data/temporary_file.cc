#include "engine/data/temporary_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status.h"

namespace penstock {
namespace {

constexpr const char* kInfix = ".tmp.";
constexpr int64_t kBufferBytes = int64_t{1} << 20;

absl::Status WriteError(const std::string& path, const std::string& action, int error) {
  if (error == ENOSPC || error == EDQUOT) {
    return Error(absl::StatusCode::kResourceExhausted, reason::kDiskInsufficient,
                 absl::StrCat(path, ": cannot ", action, ": ", std::strerror(error),
                              "; free space there or configure another directory"),
                 {{"path", path}});
  }
  return Error(absl::StatusCode::kInternal, reason::kIoError,
               absl::StrCat(path, ": cannot ", action, ": ", std::strerror(error),
                            "; the directory must exist and be writable"),
               {{"path", path}});
}

absl::Status WriteAt(const std::string& path, int fd, int64_t offset, const char* data,
                     int64_t bytes) {
  while (bytes > 0) {
    const ssize_t wrote = pwrite(fd, data, static_cast<size_t>(bytes), offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return WriteError(path, "write", errno);
    data += wrote;
    offset += wrote;
    bytes -= wrote;
  }
  return absl::OkStatus();
}

// Between open and flock another process may take the file for a stale one and remove it.
bool LockAndStillThere(int fd) {
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) return false;
  struct stat info = {};
  return fstat(fd, &info) == 0 && info.st_nlink > 0;
}

absl::Status SyncDirectory(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return WriteError(directory, "open it", errno);
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  return result == 0 ? absl::OkStatus() : WriteError(directory, "sync it", error);
}

}  // namespace

absl::StatusOr<TemporaryFile> TemporaryFile::Create(const std::string& directory,
                                                    const std::string& stem,
                                                    int64_t keep_free_bytes) {
  // A name is never used twice, or RemoveStale() could remove the second file for the first.
  static std::atomic<int64_t> next_number = 0;
  constexpr int kAttempts = 1000;
  std::string path;
  for (int i = 0; i < kAttempts; ++i) {
    path = absl::StrCat(directory, "/", stem, kInfix, getpid(), "-", next_number++);
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) return WriteError(path, "create it", errno);
    if (LockAndStillThere(fd)) return TemporaryFile(directory, path, fd, keep_free_bytes);
    close(fd);
  }
  return WriteError(path, "find a free name for it", EEXIST);
}

void TemporaryFile::RemoveStale(const std::string& directory) {
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string path = entry->path().string();
    if (entry->path().filename().string().find(kInfix) == std::string::npos) continue;
    const int fd = open(path.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) continue;
    // The lock is held until the name is gone, so its writer cannot start in between.
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
    close(fd);
  }
}

TemporaryFile::TemporaryFile(std::string directory, std::string path, int fd,
                             int64_t keep_free_bytes)
    : directory_(std::move(directory)),
      path_(std::move(path)),
      fd_(fd),
      keep_free_bytes_(keep_free_bytes) {
  buffer_.reserve(kBufferBytes);
}

TemporaryFile::TemporaryFile(TemporaryFile&& other) noexcept
    : directory_(std::move(other.directory_)),
      path_(std::exchange(other.path_, {})),
      fd_(std::exchange(other.fd_, -1)),
      keep_free_bytes_(other.keep_free_bytes_),
      buffer_(std::move(other.buffer_)),
      flushed_bytes_(other.flushed_bytes_) {}

TemporaryFile& TemporaryFile::operator=(TemporaryFile&& other) noexcept {
  std::swap(directory_, other.directory_);
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(keep_free_bytes_, other.keep_free_bytes_);
  std::swap(buffer_, other.buffer_);
  std::swap(flushed_bytes_, other.flushed_bytes_);
  return *this;
}

TemporaryFile::~TemporaryFile() {
  if (!path_.empty()) unlink(path_.c_str());  // before close: while the lock says it is ours
  if (fd_ >= 0) close(fd_);
}

absl::Status TemporaryFile::CheckRoom() const {
  struct statvfs info = {};
  if (flushed_bytes_ < kSmallBytes || fstatvfs(fd_, &info) != 0) return absl::OkStatus();
  const double free_bytes = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (free_bytes >= static_cast<double>(keep_free_bytes_)) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted, reason::kDiskInsufficient,
               absl::StrCat(path_, ": ", static_cast<int64_t>(free_bytes),
                            " bytes are left on its file system, of which ", keep_free_bytes_,
                            " are kept free; free space there or configure another directory"),
               {{"path", path_}});
}

absl::Status TemporaryFile::Write(const char* data, int64_t bytes) {
  PENSTOCK_RETURN_IF_ERROR(CheckRoom());
  PENSTOCK_RETURN_IF_ERROR(WriteAt(path_, fd_, flushed_bytes_, data, bytes));
  flushed_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status TemporaryFile::Flush() {
  PENSTOCK_RETURN_IF_ERROR(Write(buffer_.data(), static_cast<int64_t>(buffer_.size())));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status TemporaryFile::Append(std::span<const std::byte> bytes) {
  const char* data = reinterpret_cast<const char*>(bytes.data());
  const int64_t size = static_cast<int64_t>(bytes.size());
  if (static_cast<int64_t>(buffer_.size()) + size > kBufferBytes) {
    PENSTOCK_RETURN_IF_ERROR(Flush());
  }
  if (size >= kBufferBytes) return Write(data, size);
  buffer_.append(data, bytes.size());
  return absl::OkStatus();
}

absl::Status TemporaryFile::Overwrite(int64_t offset, std::span<const std::byte> bytes) {
  const int64_t end = offset + static_cast<int64_t>(bytes.size());
  PENSTOCK_CHECK(offset >= 0 && end <= size(), absl::StrCat(offset, " ", end, " ", size()));
  PENSTOCK_RETURN_IF_ERROR(Flush());
  return WriteAt(path_, fd_, offset, reinterpret_cast<const char*>(bytes.data()), end - offset);
}

absl::Status TemporaryFile::Read(int64_t offset, std::span<std::byte> bytes) {
  PENSTOCK_RETURN_IF_ERROR(Flush());
  while (!bytes.empty()) {
    const ssize_t got = pread(fd_, bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return WriteError(path_, "read it back", got < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<size_t>(got));
    offset += got;
  }
  return absl::OkStatus();
}

absl::Status TemporaryFile::Commit(const std::string& path) {
  PENSTOCK_RETURN_IF_ERROR(Flush());
  if (fsync(fd_) != 0) return WriteError(path_, "sync it", errno);
  if (rename(path_.c_str(), path.c_str()) != 0) {
    return WriteError(path_, absl::StrCat("rename it to ", path), errno);
  }
  path_.clear();
  return SyncDirectory(directory_);
}

}  // namespace penstock
