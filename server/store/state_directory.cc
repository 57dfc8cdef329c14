#include "server/store/state_directory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock::server {
namespace fs = std::filesystem;
namespace {

absl::Status IoError(const std::string& path, const char* what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return Error(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable,
               full ? reason::kDiskInsufficient : reason::kIoError,
               absl::StrCat(path, ": ", what, ": ", std::strerror(error)), {{"file", path}});
}

absl::Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return IoError(path, "cannot write", errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  if (fsync(fd) != 0) return IoError(path, "cannot fsync", errno);
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return IoError(path, "cannot open", errno);
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  return result == 0 ? absl::OkStatus() : IoError(path, "cannot fsync", error);
}

// What is written durably in it later is lost with it unless its own entry is on the device.
absl::Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) {
    const size_t slash = path.rfind('/');
    return SyncDirectory(slash == std::string::npos ? "."
                                                    : path.substr(0, std::max<size_t>(slash, 1)));
  }
  if (errno == EEXIST) return absl::OkStatus();
  return IoError(path, "cannot create the directory", errno);
}

absl::Status CheckNotShared(const std::string& path) {
  struct statfs info {};
  if (statfs(path.c_str(), &info) != 0) return IoError(path, "cannot examine", errno);
  const char* name = SharedFileSystemName(info.f_type);
  if (name == nullptr) return absl::OkStatus();
  return Error(
      absl::StatusCode::kFailedPrecondition, reason::kConfigInvalid,
      absl::StrCat(path, " lies on ", name,
                   ", which other machines may write too: neither the lock against a second "
                   "daemon nor the database's journal can be relied on there. Choose a "
                   "state_directory on a local disk; data, models and exports may lie on ",
                   name),
      {{"field", "state_directory"}, {"found", path}, {"file_system", name}});
}

}  // namespace

const char* SharedFileSystemName(int64_t type) {
  // Numbers of statfs(2); those of file systems outside the kernel are their own headers'.
  switch (static_cast<uint32_t>(type)) {
    case 0x6969:
      return "NFS";
    case 0x517B:
    case 0xFE534D42:
    case 0xFF534D42:
      return "SMB";
    case 0x01021997:
      return "9P";
    case 0x00C36400:
      return "Ceph";
    case 0x5346414F:
    case 0x6B414653:
      return "AFS";
    case 0x0BD00BD0:
      return "Lustre";
    case 0x47504653:
      return "GPFS";
    case 0x19830326:
      return "BeeGFS";
    case 0x01161970:
      return "GFS2";
    case 0x7461636F:
      return "OCFS2";
    default:
      return nullptr;
  }
}

absl::StatusOr<StateDirectory> StateDirectory::Prepare(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) return IoError(path, "cannot create its parents", error.value());
  PENSTOCK_RETURN_IF_ERROR(MakeDirectory(path));
  // Resolved once, so that workers get the same absolute path however we were started.
  const fs::path resolved = fs::canonical(path, error);
  if (error) return IoError(path, "cannot resolve", error.value());
  struct stat info {};
  if (stat(resolved.c_str(), &info) != 0) return IoError(path, "cannot examine", errno);
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 0077) != 0) {
    return Error(absl::StatusCode::kFailedPrecondition, reason::kConfigInvalid,
                 absl::StrCat(path, " must be a directory of user ", geteuid(),
                              " with mode 0700; it belongs to ", info.st_uid, " with mode ",
                              absl::StrCat(absl::Hex(info.st_mode >> 6 & 7)),
                              absl::StrCat(absl::Hex(info.st_mode >> 3 & 7)),
                              absl::StrCat(absl::Hex(info.st_mode & 7)),
                              ". Run chmod 0700 on it or choose another state_directory"),
                 {{"field", "state_directory"}, {"found", path}});
  }
  PENSTOCK_RETURN_IF_ERROR(CheckNotShared(resolved.string()));
  StateDirectory directory(resolved.string());
  for (const char* part : {"/jobs", "/trash", "/token_cache", "/incoming", "/uploads"}) {
    PENSTOCK_RETURN_IF_ERROR(MakeDirectory(directory.path() + part));
  }
  return directory;
}

std::string StateDirectory::Attempt(const std::string& job, int32_t attempt) const {
  return absl::StrCat(Job(job), "/attempts/", attempt);
}

absl::Status StateDirectory::MakeAttempt(const std::string& job, int32_t attempt) const {
  PENSTOCK_RETURN_IF_ERROR(MakeDirectory(Job(job)));
  PENSTOCK_RETURN_IF_ERROR(MakeDirectory(Checkpoints(job)));
  PENSTOCK_RETURN_IF_ERROR(MakeDirectory(Job(job) + "/attempts"));
  return MakeDirectory(Attempt(job, attempt));
}

absl::Status StateDirectory::DiscardPath(const std::string& path) const {
  // Nothing is made for it: what is deleted may be what fills the disk. The number makes the name
  // free, whatever lies in the trash already.
  static std::atomic<int64_t> discarded = 0;
  const int64_t now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string trash = absl::StrCat(path_, "/trash/", now, "-", ++discarded);
  if (rename(path.c_str(), trash.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return IoError(path, "cannot move to the trash", errno);
}

absl::Status StateDirectory::Discard(const std::string& job) const { return DiscardPath(Job(job)); }

absl::Status StateDirectory::DiscardUnknown(const std::string& folder, const std::string& kind,
                                            const std::set<std::string>& known) const {
  std::error_code error;
  std::vector<std::string> unknown;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (!known.contains(kind + it->path().filename().string())) unknown.push_back(it->path());
  }
  if (error) return IoError(folder, "cannot list", error.value());
  absl::Status all;
  for (const std::string& path : unknown) all.Update(DiscardPath(path));
  return all;
}

absl::Status StateDirectory::DiscardUnknown(const std::set<std::string>& known) const {
  return DiscardUnknown(path_ + "/jobs", "jobs/", known);
}

absl::Status StateDirectory::DiscardUnknownUploads(const std::set<std::string>& known) const {
  PENSTOCK_RETURN_IF_ERROR(DiscardUnknown(path_ + "/incoming", "uploads/", known));
  return DiscardUnknown(Uploads(), "uploads/", known);
}

std::string StateDirectory::Incoming(const std::string& upload) const {
  return absl::StrCat(path_, "/incoming/", upload.substr(upload.find('/') + 1));
}

absl::Status StateDirectory::MakeIncoming(const std::string& upload) const {
  return MakeDirectory(Incoming(upload));
}

absl::Status StateDirectory::PublishUpload(const std::string& upload) const {
  const std::string from = Incoming(upload);
  const std::string to = Upload(upload);
  if (rename(from.c_str(), to.c_str()) != 0) {
    const int error = errno;
    if (error != ENOENT || access(to.c_str(), F_OK) != 0) {
      return IoError(from, "cannot be renamed into uploads/", error);
    }
  }
  PENSTOCK_RETURN_IF_ERROR(SyncDirectory(Uploads()));
  return SyncDirectory(path_ + "/incoming");
}

void StateDirectory::EmptyTrash() const {
  std::error_code error;
  for (fs::directory_iterator it(path_ + "/trash", error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;  // What cannot be removed now is tried again at the next start.
    fs::remove_all(it->path(), ignored);
  }
}

absl::Status WriteFileDurably(const std::string& path, std::string_view bytes) {
  const std::string temporary = path + ".tmp";
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return IoError(temporary, "cannot create", errno);
  const absl::Status written = WriteAll(fd, bytes, temporary);
  close(fd);
  if (!written.ok()) {
    unlink(temporary.c_str());
    return written;
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) return IoError(path, "cannot rename", errno);
  return SyncDirectory(path.substr(0, path.rfind('/')));
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t max_bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) {
    return Error(absl::StatusCode::kNotFound, reason::kIoError,
                 absl::StrCat(path, ": there is no such file"), {{"file", path}});
  }
  if (fd < 0) return IoError(path, "cannot open", errno);
  struct stat info {};
  std::string bytes;
  absl::Status status;
  if (fstat(fd, &info) != 0) {
    status = IoError(path, "cannot examine", errno);
  } else if (!S_ISREG(info.st_mode) || info.st_size > max_bytes) {
    status = Error(absl::StatusCode::kFailedPrecondition, reason::kIoError,
                   absl::StrCat(path, " is not a regular file of at most ", max_bytes, " bytes"),
                   {{"file", path}});
  } else {
    bytes.resize(static_cast<size_t>(info.st_size));
    const ssize_t got = pread(fd, bytes.data(), bytes.size(), 0);
    if (got != info.st_size) status = IoError(path, "cannot read", got < 0 ? errno : EIO);
  }
  close(fd);
  PENSTOCK_RETURN_IF_ERROR(status);
  return bytes;
}

}  // namespace penstock::server
