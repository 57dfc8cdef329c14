#include "server/store/upload_files.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/fault/fault_point.h"
#include "server/reasons.h"

namespace penstock::server {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kHashStepBytes = int64_t{8} << 20;

absl::Status IoError(const std::string& path, const char* what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return Error(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable,
               full ? reason::kDiskInsufficient : reason::kIoError,
               absl::StrCat(path, ": ", what, ": ", std::strerror(error),
                            full ? "; what has arrived stays: free space and go on" : ""),
               {{"file", path}});
}

absl::Status UploadGone(const std::string& upload) {
  return Error(absl::StatusCode::kNotFound, reason::kUploadNotFound,
               absl::StrCat(upload,
                            " takes no more bytes: it is complete, or was deleted, or had "
                            "expired"),
               {{"upload", upload}});
}

absl::StatusOr<FileDescriptor> OpenDirectory(const std::string& path) {
  FileDescriptor fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return IoError(path, "cannot open", errno);
  return fd;
}

// -1 and errno. Paths have been checked; this keeps links that somebody put there from leading
// anywhere.
int OpenBeneath(int directory, const std::string& path, int flags) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  how.mode = (flags & O_CREAT) != 0 ? 0600 : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  const long fd = syscall(SYS_openat2, directory, path.c_str(), &how, sizeof how);
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(fd);
  // An old kernel, or a sandbox that does not know the call: only this process writes here.
  return openat(directory, path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
}

absl::Status MakeParents(int directory, const std::string& path) {
  for (size_t slash = path.find('/'); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (mkdirat(directory, parent.c_str(), 0700) != 0 && errno != EEXIST) {
      return IoError(parent, "cannot create the directory", errno);
    }
  }
  return absl::OkStatus();
}

// A regular file beneath `directory`, made if there is none.
absl::StatusOr<FileDescriptor> OpenForAppending(int directory, const std::string& path) {
  int raw = OpenBeneath(directory, path, O_RDWR | O_CREAT);
  if (raw < 0 && errno == ENOENT) {
    PENSTOCK_RETURN_IF_ERROR(MakeParents(directory, path));
    raw = OpenBeneath(directory, path, O_RDWR | O_CREAT);
  }
  if (raw < 0) return IoError(path, "cannot open", errno);
  FileDescriptor fd(raw);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return IoError(path, "cannot examine", errno);
  if (!S_ISREG(info.st_mode)) return IoError(path, "is no regular file", EINVAL);
  return fd;
}

absl::StatusOr<int64_t> SizeOf(int fd, const std::string& path) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return IoError(path, "cannot examine", errno);
  return int64_t{info.st_size};
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> UploadFiles::Received(const v1::Upload& upload) const {
  std::vector<int64_t> received;
  if (upload.complete()) {
    for (const v1::FileEntry& file : upload.files()) received.push_back(file.bytes());
    return received;
  }
  const std::string root = directory_.Incoming(upload.name());
  const absl::StatusOr<FileDescriptor> directory = OpenDirectory(root);
  if (!directory.ok()) return UploadGone(upload.name());
  for (const v1::FileEntry& file : upload.files()) {
    struct stat info {};
    if (fstatat(directory->get(), file.path().c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno != ENOENT && errno != ENOTDIR) {
        return IoError(absl::StrCat(root, "/", file.path()), "cannot examine", errno);
      }
      info.st_size = 0;
    }
    received.push_back(info.st_size);
  }
  return received;
}

int64_t UploadFiles::ReceivedBytes(const std::string& upload) const {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory_.Incoming(upload), error), end;
       !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) bytes += static_cast<int64_t>(it->file_size(ignored));
  }
  return bytes;
}

absl::StatusOr<int64_t> UploadFiles::Append(const std::string& upload, const v1::FileEntry& file,
                                            int64_t offset, std::string_view data) {
  const absl::StatusOr<FileDescriptor> directory = OpenDirectory(directory_.Incoming(upload));
  if (!directory.ok()) return UploadGone(upload);
  PENSTOCK_ASSIGN_OR_RETURN(const FileDescriptor fd,
                            OpenForAppending(directory->get(), file.path()));
  PENSTOCK_ASSIGN_OR_RETURN(int64_t size, SizeOf(fd.get(), file.path()));
  if (offset != size) {
    return Error(absl::StatusCode::kOutOfRange, reason::kUploadOffset,
                 absl::StrCat(file.path(), " of ", upload, ": offset is ", offset, ", but ", size,
                              " bytes have arrived; go on from there"),
                 {{"offset", absl::StrCat(size)}, {"found", absl::StrCat(offset)}});
  }
  if (static_cast<int64_t>(data.size()) > file.bytes() - size) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
                 absl::StrCat(file.path(), " of ", upload, ": ", data.size(), " bytes at offset ",
                              offset, " go beyond the ", file.bytes(), " that were announced"),
                 {{"field", "data"}});
  }
  futimens(directory->get(), nullptr);  // if it fails the upload expires earlier
  while (!data.empty()) {
    const ssize_t written = pwrite(fd.get(), data.data(), data.size(), size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return IoError(file.path(), "cannot write", errno);
    size += written;
    data.remove_prefix(static_cast<size_t>(written));
    FaultPoint("upload.written");
  }
  // Begins to write them out, or the fsync at the end would have it all to do.
  sync_file_range(fd.get(), offset, size - offset, SYNC_FILE_RANGE_WRITE);
  return size;
}

void UploadFiles::NoteVerified(const std::string& upload, const std::string& path) {
  verified_[upload].insert(path);
}

std::optional<time_t> UploadFiles::LastActivity(const StateDirectory& directory,
                                                const std::string& upload) {
  struct stat info {};
  if (lstat(directory.Incoming(upload).c_str(), &info) != 0) return std::nullopt;
  return info.st_mtime;
}

UploadCheck::UploadCheck(UploadFiles& files, v1::Upload upload)
    : files_(files), upload_(std::move(upload)) {}

absl::Status UploadCheck::CheckSizes() {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int64_t> received, files_.Received(upload_));
  for (int i = 0; i < upload_.files_size(); ++i) {
    const v1::FileEntry& file = upload_.files(i);
    const int64_t has = received[static_cast<size_t>(i)];
    if (has == file.bytes()) continue;
    return Error(absl::StatusCode::kFailedPrecondition, reason::kUploadIncomplete,
                 absl::StrCat(upload_.name(), ": ", file.path(), " has ", has, " of ", file.bytes(),
                              " bytes; send the rest (WriteUpload)"),
                 {{"file", file.path()},
                  {"found", absl::StrCat(has)},
                  {"expected", absl::StrCat(file.bytes())}});
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> UploadCheck::Step() {
  if (next_ < 0) {
    // Whoever began this before us has come to its end.
    if (access(files_.directory_.Upload(upload_.name()).c_str(), F_OK) == 0) return true;
    PENSTOCK_RETURN_IF_ERROR(CheckSizes());
    next_ = 0;
    return false;
  }
  if (next_ == upload_.files_size()) {
    PENSTOCK_RETURN_IF_ERROR(Publish());
    return true;
  }
  const v1::FileEntry& file = upload_.files(next_);
  if (!open_.valid()) PENSTOCK_RETURN_IF_ERROR(BeginFile(file));
  PENSTOCK_ASSIGN_OR_RETURN(const bool read, ReadSome(file));
  if (!read) return false;
  PENSTOCK_RETURN_IF_ERROR(EndFile(file));
  ++next_;
  return false;
}

absl::Status UploadCheck::BeginFile(const v1::FileEntry& file) {
  const absl::StatusOr<FileDescriptor> directory =
      OpenDirectory(files_.directory_.Incoming(upload_.name()));
  if (!directory.ok()) return UploadGone(upload_.name());
  PENSTOCK_ASSIGN_OR_RETURN(open_, OpenForAppending(directory->get(), file.path()));
  hash_ = Sha256();
  const bool verified = files_.verified_[upload_.name()].contains(file.path());
  offset_ = verified ? file.bytes() : 0;
  return absl::OkStatus();
}

absl::StatusOr<bool> UploadCheck::ReadSome(const v1::FileEntry& file) {
  std::string buffer(static_cast<size_t>(std::min(kHashStepBytes, file.bytes() - offset_)), '\0');
  if (buffer.empty()) return true;
  const ssize_t got = pread(open_.get(), buffer.data(), buffer.size(), offset_);
  if (got < 0 && errno == EINTR) return false;
  if (got <= 0) return IoError(file.path(), "cannot read", got < 0 ? errno : EIO);
  hash_.Update(std::as_bytes(std::span(buffer).first(static_cast<size_t>(got))));
  offset_ += got;
  return offset_ == file.bytes();
}

absl::Status UploadCheck::EndFile(const v1::FileEntry& file) {
  const FileDescriptor fd = std::exchange(open_, FileDescriptor());
  std::set<std::string>& verified = files_.verified_[upload_.name()];
  if (!verified.contains(file.path())) {
    const std::string found = HexOf(hash_.Finish());
    if (found != file.sha256()) {
      if (ftruncate(fd.get(), 0) != 0) return IoError(file.path(), "cannot be emptied", errno);
      return Error(absl::StatusCode::kDataLoss, reason::kUploadCorrupt,
                   absl::StrCat(upload_.name(), ": ", file.path(), " has the SHA-256 ", found,
                                ", announced was ", file.sha256(),
                                "; its bytes are forgotten: send it again"),
                   {{"file", file.path()}, {"found", found}, {"expected", file.sha256()}});
    }
    verified.insert(file.path());
  }
  if (fsync(fd.get()) != 0) {
    verified.erase(file.path());  // what the device has of it nobody knows
    return IoError(file.path(), "cannot fsync", errno);
  }
  return absl::OkStatus();
}

absl::Status UploadCheck::Publish() {
  const std::string root = files_.directory_.Incoming(upload_.name());
  std::vector<std::string> directories{root};
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored) && !it->is_symlink(ignored)) directories.push_back(it->path());
  }
  if (error) return IoError(root, "cannot list", error.value());
  for (const std::string& path : directories) {
    PENSTOCK_ASSIGN_OR_RETURN(const FileDescriptor fd, OpenDirectory(path));
    if (fsync(fd.get()) != 0) return IoError(path, "cannot fsync", errno);
  }
  FaultPoint("upload.verified");
  PENSTOCK_RETURN_IF_ERROR(files_.directory_.PublishUpload(upload_.name()));
  FaultPoint("upload.published");
  files_.verified_.erase(upload_.name());
  return absl::OkStatus();
}

}  // namespace penstock::server
