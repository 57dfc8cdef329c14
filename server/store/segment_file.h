// Append-only file of records: {u32 length, u32 xxh32 of the bytes, bytes}, little endian.
//
// Written by one SegmentWriter, read by any number of SegmentReaders at the same time, which see
// whole records only. A tail that a crash tore is cut when the file is opened for writing, and
// is the end of the file for readers. Records are not fsynced: after a power cut the worker that
// would send them again is gone too, and the next attempt writes its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock::server {

inline constexpr int64_t kMaxSegmentRecordBytes = int64_t{1} << 20;

class SegmentWriter {
 public:
  // Creates the file if there is none; cuts a torn or damaged tail.
  static absl::StatusOr<SegmentWriter> Open(const std::string& path);
  SegmentWriter(SegmentWriter&& other) noexcept;
  SegmentWriter& operator=(SegmentWriter&& other) noexcept;
  ~SegmentWriter();

  // One write call; if it fails nothing of the record stays. InvalidArgument if the record is
  // empty or longer than kMaxSegmentRecordBytes.
  absl::Status Append(std::string_view record);
  int64_t records() const { return records_; }
  // Bytes that Open() cut off.
  int64_t cut_bytes() const { return cut_bytes_; }

 private:
  explicit SegmentWriter(std::string path) : path_(std::move(path)) {}
  std::string path_;
  int fd_ = -1;
  int64_t records_ = 0;
  int64_t end_ = 0;
  int64_t cut_bytes_ = 0;
};

class SegmentReader {
 public:
  // A file that does not exist yet reads as empty; later calls of Next() look again.
  explicit SegmentReader(std::string path) : path_(std::move(path)) {}
  SegmentReader(const SegmentReader&) = delete;
  SegmentReader& operator=(const SegmentReader&) = delete;
  ~SegmentReader();

  // The next record, or nothing at the end of what is whole; more may come later.
  absl::StatusOr<std::optional<std::string>> Next();
  // Passes over up to `count` records; gives how many there were.
  absl::StatusOr<int64_t> Skip(int64_t count);
  // Record number of what Next() reads, from 0, and its byte offset.
  int64_t index() const { return index_; }
  int64_t offset() const { return offset_; }
  // To a place that offset() once gave for `index`.
  void Seek(int64_t index, int64_t offset);

 private:
  // Makes at least `bytes` from offset_ on available in buffer_; false if the file is shorter.
  absl::StatusOr<bool> Fill(int64_t bytes);

  std::string path_;
  int fd_ = -1;
  int64_t index_ = 0;
  int64_t offset_ = 0;
  std::string buffer_;  // bytes of the file from buffer_start_
  int64_t buffer_start_ = 0;
};

}  // namespace penstock::server
