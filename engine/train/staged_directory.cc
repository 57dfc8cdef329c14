#include "engine/train/staged_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/base/units.h"

namespace penstock {
namespace {

constexpr size_t kMaxNameBytes = 200;  // leaves room for the temporary name in NAME_MAX
constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr int kMaxAttempts = 16;

absl::Status IoFailure(const std::string& what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return Error(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable,
               full ? reason::kDiskInsufficient : reason::kIoError,
               absl::StrCat("cannot ", what, ": ", std::strerror(error)));
}

absl::Status Exists(const std::string& destination) {
  return Error(absl::StatusCode::kAlreadyExists, reason::kOutputExists,
               absl::StrCat(destination,
                            " exists already; choose another name, or ask for it to be replaced"),
               {{"path", destination}});
}

absl::Status NotReplaceable(const std::string& destination, const char* what) {
  return Error(absl::StatusCode::kFailedPrecondition, reason::kOutputExists,
               absl::StrCat(destination, " ", what,
                            "; only a directory of plain files, as an export makes it, is "
                            "replaced: choose another name"),
               {{"path", destination}});
}

void RemoveTree(const std::string& path) {
  std::error_code ignored;  // what is left is found by the next Create
  std::filesystem::remove_all(path, ignored);
}

constexpr char kStaging[] = ".staging-";

std::string StagingPrefix(const std::string& name) { return absl::StrCat(".", name, kStaging); }

// Removes the staging directories whose names begin so and whose owners are dead: their locks died
// with them.
void RemoveStale(const std::string& parent, const std::string& prefix) {
  const absl::StatusOr<RootedDirectory> directory = RootedDirectory::Open(parent);
  if (!directory.ok()) return;
  const absl::StatusOr<std::vector<std::string>> entries = directory->List();
  if (!entries.ok()) return;
  for (const std::string& entry : *entries) {
    if (!absl::StartsWith(entry, prefix) || !absl::StrContains(entry, kStaging)) continue;
    const FileDescriptor stale(openat(directory->fd(), entry.c_str(), kDirectoryFlags));
    if (!stale.valid() || flock(stale.get(), LOCK_EX | LOCK_NB) != 0) continue;
    RemoveTree(absl::StrCat(parent, "/", entry));
  }
}

absl::StatusOr<uint64_t> RandomNumber() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
    return IoFailure("read random bytes", errno);
  }
  return number;
}

// Whether `name` in the parent is still the directory that `fd` has open.
bool IsSameDirectory(int parent_fd, const std::string& name, int fd) {
  struct stat by_name {
  }, by_fd{};
  return fstatat(parent_fd, name.c_str(), &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
         fstat(fd, &by_fd) == 0 && by_name.st_ino == by_fd.st_ino && by_name.st_dev == by_fd.st_dev;
}

// Whether there is something at the destination; an error if it may not be there.
absl::StatusOr<bool> CheckDestination(const std::string& destination, int parent_fd,
                                      const std::string& name, Existing existing) {
  struct stat info {};
  if (fstatat(parent_fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return false;
    return IoFailure(absl::StrCat("look at ", destination), errno);
  }
  if (existing == Existing::kRefuse) return Exists(destination);
  if (!S_ISDIR(info.st_mode)) return NotReplaceable(destination, "is not a directory");
  PENSTOCK_ASSIGN_OR_RETURN(const RootedDirectory directory, RootedDirectory::Open(destination));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> entries, directory.List());
  for (const std::string& entry : entries) {
    if (fstatat(directory.fd(), entry.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(info.st_mode)) {
      return NotReplaceable(destination, "holds directories");
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<StagedDirectory> StagedDirectory::Create(const std::string& destination,
                                                        Existing existing) {
  StagedDirectory staged;
  staged.destination_ = destination;
  while (staged.destination_.size() > 1 && staged.destination_.back() == '/') {
    staged.destination_.pop_back();
  }
  const size_t slash = staged.destination_.rfind('/');
  const bool bare = slash == std::string::npos;
  staged.parent_ = bare ? "." : slash == 0 ? "/" : staged.destination_.substr(0, slash);
  staged.name_ = bare ? staged.destination_ : staged.destination_.substr(slash + 1);
  staged.existing_ = existing;
  if (staged.name_.empty() || staged.name_ == "." || staged.name_ == ".." ||
      staged.name_.size() > kMaxNameBytes || destination.find('\0') != std::string::npos) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kPathNotAllowed,
                 absl::StrCat("\"", destination.substr(0, kMaxNameBytes),
                              "\" cannot name an output directory; a path that ends in a name of "
                              "at most ",
                              kMaxNameBytes, " bytes is needed"));
  }
  staged.parent_fd_ =
      FileDescriptor(open(staged.parent_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!staged.parent_fd_.valid()) {
    return Error(absl::StatusCode::kNotFound, reason::kIoError,
                 absl::StrCat("cannot open ", staged.parent_, ", which ", destination,
                              " is to be in: ", std::strerror(errno), "; create it first"));
  }
  PENSTOCK_RETURN_IF_ERROR(
      CheckDestination(staged.destination_, staged.parent_fd_.get(), staged.name_, existing)
          .status());
  RemoveStale(staged.parent_, StagingPrefix(staged.name_));
  PENSTOCK_RETURN_IF_ERROR(staged.MakeTemporary());
  return staged;
}

// Another process may take the new directory for a stale one before it is locked; so a
// directory counts as ours once it is locked and still there.
absl::Status StagedDirectory::MakeTemporary() {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    PENSTOCK_ASSIGN_OR_RETURN(const uint64_t number, RandomNumber());
    const std::string name = absl::StrFormat("%s%016x", StagingPrefix(name_), number);
    if (mkdirat(parent_fd_.get(), name.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      return IoFailure(absl::StrCat("create a directory in ", parent_), errno);
    }
    FileDescriptor fd(openat(parent_fd_.get(), name.c_str(), kDirectoryFlags));
    if (!fd.valid()) continue;
    // A file system without locks gives no protection, and no cleaning that would need it.
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) continue;
    if (!IsSameDirectory(parent_fd_.get(), name, fd.get())) continue;
    fd_ = std::move(fd);
    temp_name_ = name;
    return absl::OkStatus();
  }
  return IoFailure(absl::StrCat("create a directory in ", parent_), EBUSY);
}

StagedDirectory::StagedDirectory(StagedDirectory&& other) noexcept
    : destination_(std::move(other.destination_)),
      parent_(std::move(other.parent_)),
      name_(std::move(other.name_)),
      temp_name_(std::exchange(other.temp_name_, "")),
      existing_(other.existing_),
      parent_fd_(std::move(other.parent_fd_)),
      fd_(std::move(other.fd_)),
      subdirectories_(std::move(other.subdirectories_)) {}

StagedDirectory::~StagedDirectory() {
  if (!temp_name_.empty()) RemoveTree(absl::StrCat(parent_, "/", temp_name_));
}

void StagedDirectory::RemoveAbandoned(const std::string& parent) { RemoveStale(parent, "."); }

absl::Status StagedDirectory::CheckRoom(int64_t bytes) const {
  struct statvfs info {};
  if (fstatvfs(fd_.get(), &info) != 0) {
    return IoFailure(absl::StrCat("ask for the room in ", parent_), errno);
  }
  const double free_bytes = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (free_bytes >= static_cast<double>(bytes)) return absl::OkStatus();
  const int64_t usable = static_cast<int64_t>(free_bytes);
  return Error(
      absl::StatusCode::kResourceExhausted, reason::kDiskInsufficient,
      absl::StrCat(destination_, " needs ", FormatBytes(bytes), " and its file system has ",
                   FormatBytes(usable), ": free space or choose another place"),
      {{"needed_bytes", absl::StrCat(bytes)}, {"usable_bytes", absl::StrCat(usable)}});
}

absl::StatusOr<int> StagedDirectory::MakeSubdirectory(const std::string& name) {
  if (mkdirat(fd_.get(), name.c_str(), 0777) != 0) {
    return IoFailure(absl::StrCat("create ", name, " for ", destination_), errno);
  }
  FileDescriptor fd(openat(fd_.get(), name.c_str(), kDirectoryFlags));
  if (!fd.valid()) return IoFailure(absl::StrCat("open ", name, " of ", destination_), errno);
  subdirectories_.push_back(std::move(fd));
  return subdirectories_.back().get();
}

// REQUIRES: nothing is there, or replacing it was asked for and is allowed.
absl::Status StagedDirectory::Place(bool replaces) {
  const int parent = parent_fd_.get();
  const unsigned flags = replaces ? RENAME_EXCHANGE : RENAME_NOREPLACE;
  if (renameat2(parent, temp_name_.c_str(), parent, name_.c_str(), flags) == 0) {
    return absl::OkStatus();
  }
  if (errno == EEXIST) return Exists(destination_);
  if (errno != EINVAL && errno != ENOSYS) {
    return IoFailure(absl::StrCat("rename to ", destination_), errno);
  }
  // A file system without these flags. Moving the old directory aside leaves a moment with
  // none; a plain rename fails on a directory that is not empty.
  const std::string aside = absl::StrCat(temp_name_, "-old");
  if (replaces && renameat(parent, name_.c_str(), parent, aside.c_str()) != 0) {
    return IoFailure(absl::StrCat("move the old ", destination_, " aside"), errno);
  }
  if (renameat(parent, temp_name_.c_str(), parent, name_.c_str()) != 0) {
    const int error = errno;
    if (replaces) renameat(parent, aside.c_str(), parent, name_.c_str());
    return IoFailure(absl::StrCat("rename to ", destination_), error);
  }
  if (replaces) renameat(parent, aside.c_str(), parent, temp_name_.c_str());
  return absl::OkStatus();
}

absl::Status StagedDirectory::Commit() {
  for (const FileDescriptor& subdirectory : subdirectories_) {
    if (fsync(subdirectory.get()) != 0) {
      return IoFailure(absl::StrCat("flush a directory of ", destination_), errno);
    }
  }
  if (fsync(fd_.get()) != 0) return IoFailure(absl::StrCat("flush ", destination_), errno);
  PENSTOCK_ASSIGN_OR_RETURN(const bool replaces,
                            CheckDestination(destination_, parent_fd_.get(), name_, existing_));
  PENSTOCK_RETURN_IF_ERROR(Place(replaces));
  // From here on the new directory is in place; the old one, if any, has the temporary name.
  if (fsync(parent_fd_.get()) != 0) {
    const int error = errno;
    TakeBack(replaces);
    return IoFailure(absl::StrCat("flush ", parent_), error);
  }
  const std::string old = absl::StrCat(parent_, "/", std::exchange(temp_name_, ""));
  if (replaces) RemoveTree(old);
  return absl::OkStatus();
}

// Nobody knows which of the two a power cut would leave, so neither is removed unless the old
// order is there again.
void StagedDirectory::TakeBack(bool replaces) {
  const int parent = parent_fd_.get();
  const unsigned flags = replaces ? RENAME_EXCHANGE : 0;
  if (renameat2(parent, name_.c_str(), parent, temp_name_.c_str(), flags) != 0) temp_name_.clear();
}

absl::Status MakeDirectories(const std::string& path) {
  std::vector<std::filesystem::path> missing;
  std::error_code error;
  for (std::filesystem::path at = path; !at.empty(); at = at.parent_path()) {
    if (std::filesystem::exists(at, error) || at == at.parent_path()) break;
    if (error) return IoFailure(absl::StrCat("look at ", at.string()), error.value());
    missing.push_back(at);
  }
  for (; !missing.empty(); missing.pop_back()) {
    const std::filesystem::path& made = missing.back();
    if (mkdir(made.c_str(), 0777) != 0 && errno != EEXIST) {
      return IoFailure(absl::StrCat("make the directory ", made.string()), errno);
    }
    const std::filesystem::path parent = made.has_parent_path() ? made.parent_path() : ".";
    const FileDescriptor fd(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid() || fsync(fd.get()) != 0) {
      return IoFailure(absl::StrCat("flush ", parent.string()), errno);
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock
