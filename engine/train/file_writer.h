// Creates a file and writes it front to back, hashing on the way: of a checkpoint's threads some
// hash while others wait for the disk. Short writes are continued, a full disk is
// DISK_INSUFFICIENT, and nothing counts as written before Finish() returned OK.
//
// Bytes are gathered in a buffer. Large files go to the disk past the page cache, a full buffer at
// a time, if the file system has that (O_DIRECT): a cache that is filled with what nobody reads
// soon is slower and competes with the store for memory. What the buffer holds at the end goes the
// usual way, and so does all of it where O_DIRECT is refused, in whatever way. Small files always
// go the usual way: that each write waits for the disk is then all that O_DIRECT would do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/provenance/sha256.h"
#include "engine/train/rooted_file.h"

namespace penstock {

struct WrittenFile {
  std::string name;
  int64_t bytes = 0;
  uint64_t xxh3 = 0;        // XXH3-64 of the content: what loading compares, as fast as memory
  std::string sha256 = {};  // for provenance.json, which is to withstand forgers
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
  // The most that the buffer has, for memory plans.
  static constexpr int64_t kBufferBytes = int64_t{4} << 20;

  // `name` must not exist in the directory, whose path is for messages only. Reserves
  // `expected_bytes` on the device where the file system can; there may be fewer or more in the
  // end.
  static absl::StatusOr<FileWriter> Create(int directory_fd, const std::string& directory,
                                           const std::string& name, int64_t expected_bytes);

  // The bytes may change when this returns.
  absl::Status Append(std::span<const std::byte> bytes);
  // fsync and close.
  absl::StatusOr<WrittenFile> Finish();

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  FileWriter(FileDescriptor fd, std::string path, std::string name)
      : fd_(std::move(fd)), path_(std::move(path)), file_{.name = std::move(name)} {}
  absl::Status Reserve(int64_t bytes);
  absl::Status AllocateBuffer(int64_t expected_bytes);
  // Goes past the page cache from here on, or no longer.
  void SetDirect(bool direct);
  absl::Status Write(std::span<const std::byte> bytes);
  absl::Status Failure(const char* what, int error, int64_t bytes) const;

  FileDescriptor fd_;
  std::string path_;
  WrittenFile file_;
  StreamHash hash_;
  Sha256 sha256_;
  std::unique_ptr<std::byte[], Free> buffer_;
  size_t capacity_ = 0, filled_ = 0;  // of the buffer
  bool direct_ = false;
};

// A whole small file in one call.
absl::StatusOr<WrittenFile> WriteWholeFile(int directory_fd, const std::string& directory,
                                           const std::string& name, std::string_view content);

}  // namespace penstock
