#include "engine/train/rooted_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "engine/base/status.h"
#include "engine/base/units.h"

namespace penstock {
namespace {

constexpr size_t kMaxPathBytes = 4096;
constexpr size_t kMaxDirectoryEntries = 100'000;
constexpr int kMaxSymbolicLinks = 40;  // as the kernel
// O_NONBLOCK: opening a FIFO must not wait for its other end.
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

bool HasControlCharacter(absl::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

// For messages: a hostile name must not reach a terminal as it is.
std::string Quoted(absl::string_view name) {
  std::string text = "\"";
  for (const char c : name.substr(0, 200)) text += HasControlCharacter({&c, 1}) ? '?' : c;
  return absl::StrCat(text, name.size() > 200 ? "...\"" : "\"");
}

absl::Status NotAllowed(const std::string& message) {
  return Error(absl::StatusCode::kPermissionDenied, reason::kPathNotAllowed, message);
}

absl::Status LeadsOutside(const std::string& directory, const std::string& name) {
  return NotAllowed(absl::StrCat(
      "file name ", Quoted(name), " leads outside of ", directory,
      "; only files in the directory are read: copy them there (`cp -rL` turns links, as in a "
      "Hugging Face cache, into files)"));
}

absl::Status CheckName(const std::string& directory, const std::string& name) {
  if (name.empty() || name.size() > kMaxPathBytes || HasControlCharacter(name)) {
    return NotAllowed(absl::StrCat("file name ", Quoted(name), " for ", directory,
                                   " is empty, too long or has control characters"));
  }
  for (absl::string_view part : absl::StrSplit(name, '/')) {
    if (part.empty() || part == "." || part == "..") return LeadsOutside(directory, name);
  }
  return absl::OkStatus();
}

// Both openers return a descriptor, or -1 and errno.
int OpenBeneath(int directory, const std::string& name) {
  open_how how{};
  how.flags = kOpenFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  for (int attempt = 0; attempt < 16; ++attempt) {
    const long fd = syscall(SYS_openat2, directory, name.c_str(), &how, sizeof(how));
    // EAGAIN: something was renamed during the walk.
    if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) return static_cast<int>(fd);
  }
  return -1;
}

int OpenByWalking(int directory, const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  FileDescriptor at;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const int parent = at.valid() ? at.get() : directory;
    FileDescriptor next(openat(parent, parts[i].c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!next.valid()) return -1;
    struct stat info {};
    if (fstat(next.get(), &info) != 0) return -1;
    if (S_ISLNK(info.st_mode)) {  // O_PATH opens the link itself
      errno = ELOOP;
      return -1;
    }
    at = std::move(next);
  }
  const int parent = at.valid() ? at.get() : directory;
  return openat(parent, parts.back().c_str(), kOpenFlags | O_NOFOLLOW);
}

// Of what is not about the file's name.
absl::StatusCode CodeOfOpenFailure(int error) {
  const bool lacks = error == EMFILE || error == ENFILE || error == ENOMEM;
  return lacks ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable;
}

absl::Status OpenFailure(const std::string& directory, const std::string& name, int error) {
  if (error == EXDEV || error == ELOOP) return LeadsOutside(directory, name);
  if (error == ENOENT || error == ENOTDIR) {
    return Error(absl::StatusCode::kNotFound, reason::kModelInvalid,
                 absl::StrCat(directory, " has no file ", Quoted(name)), {{"file", name}});
  }
  if (error == ENXIO) return NotAllowed(absl::StrCat(Quoted(name), " is not a regular file"));
  return Error(CodeOfOpenFailure(error), reason::kIoError,
               absl::StrCat("cannot open ", directory, "/", name, ": ", std::strerror(error)),
               {{"file", name}});
}

// Resolves links in what exists of an absolute path; the rest may be names only.
std::optional<std::string> Canonical(const std::string& path) {
  if (path.empty() || path[0] != '/' || path.size() > kMaxPathBytes || HasControlCharacter(path)) {
    return std::nullopt;
  }
  std::deque<std::string> todo = absl::StrSplit(path, '/');
  std::string at;  // without a trailing slash; "" is the root
  bool exists = true;
  int links = 0;
  while (!todo.empty()) {
    const std::string part = todo.front();
    todo.pop_front();
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (!exists) return std::nullopt;
      if (!at.empty()) at.resize(at.rfind('/'));
      continue;
    }
    const std::string next = absl::StrCat(at, "/", part);
    struct stat info {};
    if (exists && lstat(next.c_str(), &info) != 0) {
      if (errno != ENOENT) return std::nullopt;
      exists = false;
    }
    if (exists && S_ISLNK(info.st_mode)) {
      char target[kMaxPathBytes + 1];
      const ssize_t length = readlink(next.c_str(), target, kMaxPathBytes);
      if (length <= 0 || ++links > kMaxSymbolicLinks) return std::nullopt;
      if (target[0] == '/') at.clear();
      const std::vector<std::string> parts =
          absl::StrSplit(absl::string_view(target, static_cast<size_t>(length)), '/');
      todo.insert(todo.begin(), parts.begin(), parts.end());
      continue;
    }
    at = next;
  }
  return at.empty() ? "/" : at;
}

}  // namespace

bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos &&
         !HasControlCharacter({name.data(), name.size()});
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileDescriptor::~FileDescriptor() { Close(); }

int FileDescriptor::Close() {
  const int fd = std::exchange(fd_, -1);
  return fd >= 0 && close(fd) != 0 ? errno : 0;
}

absl::Status ReadableFile::ReadAt(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = pread(fd_.get(), out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Error(
          absl::StatusCode::kUnavailable, reason::kIoError,
          absl::StrCat("cannot read ", path_, " at byte ", offset, ": ", std::strerror(errno)));
    }
    if (got == 0) {
      return Error(absl::StatusCode::kDataLoss, reason::kIoError,
                   absl::StrCat(path_, " ends at byte ", offset, "; it had ", size_,
                                " bytes when it was opened and has been cut off since"));
    }
    offset += got;
    out = out.subspan(static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadableFile::ReadAll(int64_t max_bytes) const {
  if (size_ > max_bytes) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid,
                 absl::StrCat(path_, " has ", size_, " bytes, more than the limit of ",
                              FormatBytes(max_bytes)));
  }
  std::string content(static_cast<size_t>(size_), '\0');
  PENSTOCK_RETURN_IF_ERROR(ReadAt(0, std::as_writable_bytes(std::span(content))));
  return content;
}

void ReadableFile::Forget(int64_t offset, int64_t bytes) const {
  posix_fadvise(fd_.get(), offset, bytes, POSIX_FADV_DONTNEED);  // a hint: failure changes nothing
}

absl::StatusOr<RootedDirectory> RootedDirectory::Open(const std::string& path, Resolver resolver) {
  FileDescriptor fd;
  errno = ENOENT;
  if (path.find('\0') == std::string::npos) {
    fd = FileDescriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  const int error = errno;
  if (!fd.valid() && error != ENOENT && error != ENOTDIR && error != ENAMETOOLONG &&
      error != ELOOP) {
    return Error(CodeOfOpenFailure(error), reason::kIoError,
                 absl::StrCat("cannot open directory ", Quoted(path), ": ", std::strerror(error)),
                 {{"path", path}});
  }
  if (!fd.valid()) {
    return Error(absl::StatusCode::kNotFound, reason::kModelInvalid,
                 absl::StrCat(Quoted(path),
                              " is not a directory that can be read; the directory "
                              "of a model or a checkpoint is needed"),
                 {{"path", path}});
  }
  return RootedDirectory(std::move(fd), path, resolver);
}

absl::StatusOr<ReadableFile> RootedDirectory::OpenFile(const std::string& name) const {
  PENSTOCK_RETURN_IF_ERROR(CheckName(path_, name));
  int raw = -1;
  bool walk = resolver_ == Resolver::kWalk;
  if (!walk) {
    raw = OpenBeneath(fd(), name);
    // ENOSYS: an old kernel; EPERM: a sandbox that does not know the call.
    walk = raw < 0 && (errno == ENOSYS || errno == EPERM);
  }
  if (walk) raw = OpenByWalking(fd(), name);
  const int error = errno;
  FileDescriptor file(raw);
  if (!file.valid()) return OpenFailure(path_, name, error);
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return OpenFailure(path_, name, errno);
  if (!S_ISREG(info.st_mode)) {
    return NotAllowed(absl::StrCat(Quoted(name), " in ", path_,
                                   " is not a regular file; a regular file is needed"));
  }
  return ReadableFile(std::move(file), absl::StrCat(path_, "/", name), info.st_size);
}

absl::StatusOr<std::vector<std::string>> RootedDirectory::List() const {
  const int raw = openat(fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = raw < 0 ? nullptr : fdopendir(raw);
  if (stream == nullptr) {
    const int error = errno;
    FileDescriptor close_it(raw);
    return Error(absl::StatusCode::kUnavailable, reason::kIoError,
                 absl::StrCat("cannot list ", path_, ": ", std::strerror(error)));
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    if (names.size() > kMaxDirectoryEntries) break;
    errno = 0;
  }
  const int read_error = names.size() > kMaxDirectoryEntries ? 0 : errno;
  closedir(stream);
  if (read_error != 0) {
    return Error(absl::StatusCode::kUnavailable, reason::kIoError,
                 absl::StrCat("cannot list ", path_, ": ", std::strerror(read_error)));
  }
  if (names.size() > kMaxDirectoryEntries) {
    return Error(absl::StatusCode::kResourceExhausted, reason::kModelInvalid,
                 absl::StrCat(path_, " holds more than ", kMaxDirectoryEntries,
                              " files; is it a model's directory?"));
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::string> CheckUnderRoots(const std::string& path,
                                            const std::vector<std::string>& roots) {
  const std::optional<std::string> canonical = Canonical(path);
  for (const std::string& root : roots) {
    const std::optional<std::string> top = Canonical(root);
    if (!canonical || !top) continue;
    if (*top == "/" || *canonical == *top || absl::StartsWith(*canonical, *top + "/")) {
      return *canonical;
    }
  }
  return NotAllowed(
      absl::StrCat("path ", Quoted(path), " is not under an allowed root (",
                   roots.empty() ? "none is configured" : absl::StrJoin(roots, ", "),
                   "); use an absolute path under one, or start penstockd with this one as well "
                   "(--allowed-root, or allowed_roots in its configuration)"));
}

}  // namespace penstock
