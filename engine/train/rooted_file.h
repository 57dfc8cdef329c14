// Reading files beneath a directory by names that came from elsewhere (an index, a request).
//
// RootedDirectory resolves names with openat2(RESOLVE_BENEATH): the kernel refuses every way
// out (.., an absolute path, a symbolic link) in the same walk that opens the file, so there
// is no moment between check and use. Where openat2 is missing the walk is done here, one
// component at a time, and follows no symbolic link at all.
//
// A name that leads outside gives PermissionDenied / PATH_NOT_ALLOWED whatever lies there, so
// that the error does not tell what exists. Only regular files are opened; a FIFO or a device
// in their place is refused without blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

// Whether `name` can be a file directly in a directory and nothing else: no slash, no control
// characters, not "." or "..", 1 to 255 bytes.
bool IsPlainFileName(std::string_view name);

// Sole owner of a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Closes now; the errno of close(2), 0 if it went well.
  int Close();

 private:
  int fd_ = -1;
};

// A regular file, open for reading. Thread-safe: reads name their place.
class ReadableFile {
 public:
  ReadableFile(FileDescriptor fd, std::string path, int64_t size)
      : fd_(std::move(fd)), path_(std::move(path)), size_(size) {}

  // Fills `out` from `offset`. DataLoss / IO_ERROR if the file ends earlier.
  absl::Status ReadAt(int64_t offset, std::span<std::byte> out) const;
  // The whole file. InvalidArgument / MODEL_INVALID if it is larger than max_bytes.
  absl::StatusOr<std::string> ReadAll(int64_t max_bytes) const;
  // Lets the kernel drop its cached copy of these bytes: an import reads each byte once, and
  // the cache would compete with the store it fills.
  void Forget(int64_t offset, int64_t bytes) const;

  const std::string& path() const { return path_; }  // for messages
  int64_t size() const { return size_; }             // when it was opened

 private:
  FileDescriptor fd_;
  std::string path_;
  int64_t size_;
};

class RootedDirectory {
 public:
  enum class Resolver : uint8_t { kKernel, kWalk };  // kWalk: as if openat2 were missing

  // NotFound / MODEL_INVALID if `path` is no directory. Here and below IO_ERROR if the system
  // fails: Unavailable, or ResourceExhausted if it lacks descriptors or memory for the call.
  static absl::StatusOr<RootedDirectory> Open(const std::string& path,
                                              Resolver resolver = Resolver::kKernel);

  // `name`: components separated by single slashes; none empty, "." or "..", no control
  // characters. NotFound / MODEL_INVALID if there is no such file in the directory.
  absl::StatusOr<ReadableFile> OpenFile(const std::string& name) const;

  // Names directly in the directory, sorted, without "." and "..". ResourceExhausted /
  // MODEL_INVALID beyond 100,000 of them.
  absl::StatusOr<std::vector<std::string>> List() const;

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }

 private:
  RootedDirectory(FileDescriptor fd, std::string path, Resolver resolver)
      : fd_(std::move(fd)), path_(std::move(path)), resolver_(resolver) {}
  FileDescriptor fd_;
  std::string path_;
  Resolver resolver_;
};

// `path` with every symbolic link resolved, if it is absolute and lies in (or is) one of
// `roots`, resolved too. Its last components need not exist (an output directory). Otherwise
// PermissionDenied / PATH_NOT_ALLOWED, the same for whatever lies outside.
absl::StatusOr<std::string> CheckUnderRoots(const std::string& path,
                                            const std::vector<std::string>& roots);

}  // namespace penstock
