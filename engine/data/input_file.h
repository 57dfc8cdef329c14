// InputFile reads a training file once, front to back, and hashes what it reads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/hash.h"

namespace penstock {

// Called with the number of bytes just read, about once a MiB; a status that is not OK ends the
// reading with it. May be null.
using ReadProgress = std::function<absl::Status(int64_t new_bytes)>;

inline constexpr int64_t kReadBytes = int64_t{1} << 20;

class InputFile {
 public:
  // Opens a regular file; FIFOs, devices and directories are refused without blocking on them.
  // DATA_INVALID, naming the format, for what is certainly no text: compressed files, Parquet,
  // UTF-16, Git LFS pointers.
  static absl::StatusOr<InputFile> Open(const std::string& path, ReadProgress progress);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  // Reads up to buffer.size() bytes; 0 only at the end. A UTF-8 byte-order mark at the start of
  // the file is hashed and left out. FailedPrecondition once there are more bytes than there
  // were at Open().
  absl::StatusOr<int64_t> Read(std::span<char> buffer);

  // The first bytes, byte-order mark left out. REQUIRES: nothing was read yet.
  std::string_view head() const { return head_; }
  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when opened
  // Of the bytes read so far.
  std::string content_hash() const { return hash_.HexDigest(); }

 private:
  InputFile(std::string path, int fd, int64_t size, ReadProgress progress);
  absl::StatusOr<int64_t> ReadRaw(std::span<char> buffer);
  absl::Status Grown() const;
  absl::Status ReadHead();

  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
  int64_t read_bytes_ = 0;
  ReadProgress progress_;
  ContentHash hash_;
  std::string head_;  // read ahead to know the format, not yet given out
};

}  // namespace penstock
