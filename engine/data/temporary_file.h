// A file that appears under its name complete or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock {

// Written front to back under a temporary name, then committed. The destructor removes what was
// not committed; RemoveStale() what a killed process left. A lock on the file tells the two
// apart: the kernel drops it with the process.
//
// Errors: DISK_INSUFFICIENT if the file system is full, IO_ERROR otherwise, naming the file.
class TemporaryFile {
 public:
  // A file of more than kSmallBytes is not written on once its file system has less room than this:
  // others, the daemon's database among them, need some too.
  static constexpr int64_t kKeepFreeBytes = int64_t{256} << 20;
  static constexpr int64_t kSmallBytes = int64_t{16} << 20;

  // Creates "<directory>/<stem>.tmp.<number>", readable by this user only.
  static absl::StatusOr<TemporaryFile> Create(const std::string& directory, const std::string& stem,
                                              int64_t keep_free_bytes = kKeepFreeBytes);
  // Removes the temporary files of `directory` that no living process is writing.
  static void RemoveStale(const std::string& directory);

  TemporaryFile(TemporaryFile&& other) noexcept;
  TemporaryFile& operator=(TemporaryFile&& other) noexcept;
  ~TemporaryFile();

  // Buffered.
  absl::Status Append(std::span<const std::byte> bytes);
  // Bytes appended so far.
  int64_t size() const { return flushed_bytes_ + static_cast<int64_t>(buffer_.size()); }
  // Writes over bytes already appended.
  absl::Status Overwrite(int64_t offset, std::span<const std::byte> bytes);
  // Reads bytes already appended; all of them or an error.
  absl::Status Read(int64_t offset, std::span<std::byte> bytes);
  // Makes the bytes durable, then the name: sync, rename over `path`, sync of the directory.
  absl::Status Commit(const std::string& path);

 private:
  TemporaryFile(std::string directory, std::string path, int fd, int64_t keep_free_bytes);
  absl::Status CheckRoom() const;
  // Behind what is there, unbuffered.
  absl::Status Write(const char* data, int64_t bytes);
  absl::Status Flush();

  std::string directory_;
  std::string path_;  // empty once committed
  int fd_ = -1;
  int64_t keep_free_bytes_ = 0;
  std::string buffer_;
  int64_t flushed_bytes_ = 0;
};

}  // namespace penstock
