#include "server/metric_files/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock::server {
namespace {

absl::Status IoError(const std::string& path, const char* what) {
  const bool full = errno == ENOSPC || errno == EDQUOT;
  return Error(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable,
               full ? reason::kDiskInsufficient : reason::kIoError,
               absl::StrCat(path, ": ", what, ": ", std::strerror(errno)), {{"file", path}});
}

}  // namespace

absl::StatusOr<AppendFile> AppendFile::Open(const std::string& path, int64_t keep_bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return IoError(path, "cannot open");
  AppendFile file(path, fd, keep_bytes);
  if (ftruncate(fd, keep_bytes) != 0) return IoError(path, "cannot cut the torn tail");
  return file;
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), end_(other.end_) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(end_, other.end_);
  return *this;
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status AppendFile::Append(std::string_view bytes) {
  const ssize_t written = pwrite(fd_, bytes.data(), bytes.size(), end_);
  if (written == static_cast<ssize_t>(bytes.size())) {
    end_ += written;
    return absl::OkStatus();
  }
  if (written >= 0) errno = ENOSPC;
  const absl::Status failed = IoError(path_, "cannot write");
  // If this fails too, whoever opens the file next cuts what is no whole piece.
  (void)!ftruncate(fd_, end_);
  return failed;
}

}  // namespace penstock::server
