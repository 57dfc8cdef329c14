// Creates a file and writes it front to back, hashing on the way. Short writes are continued,
// a full disk is DISK_INSUFFICIENT, and nothing counts as written before Finish() returned OK.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/train/rooted_file.h"

namespace penstock {

struct WrittenFile {
  std::string name;
  int64_t bytes = 0;
  uint64_t xxh3 = 0;  // XXH3-64 of the content
};

// XXH3-64 of a stream.
class StreamHash {
 public:
  StreamHash();
  StreamHash(StreamHash&&) noexcept;
  StreamHash& operator=(StreamHash&&) noexcept;
  ~StreamHash();
  void Update(std::span<const std::byte> bytes);
  uint64_t Digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class FileWriter {
 public:
  // `name` must not exist in the directory, whose path is for messages only.
  static absl::StatusOr<FileWriter> Create(int directory_fd, const std::string& directory,
                                           const std::string& name);

  // Reserves the bytes on the device where the file system can.
  absl::Status Reserve(int64_t bytes);
  absl::Status Append(std::span<const std::byte> bytes);
  // fsync and close.
  absl::StatusOr<WrittenFile> Finish();

 private:
  FileWriter(FileDescriptor fd, std::string path, std::string name)
      : fd_(std::move(fd)), path_(std::move(path)), file_{.name = std::move(name)} {}
  absl::Status Failure(const char* what, int error, int64_t bytes) const;

  FileDescriptor fd_;
  std::string path_;
  WrittenFile file_;
  StreamHash hash_;
};

// A whole small file in one call.
absl::StatusOr<WrittenFile> WriteWholeFile(int directory_fd, const std::string& directory,
                                           const std::string& name, std::string_view content);

}  // namespace penstock
