#include "server/store/segment_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "xxhash.h"

namespace penstock::server {
namespace {

constexpr int64_t kHeaderBytes = 8;
// Small, for each of up to a thousand watchers has a reader.
constexpr int64_t kReadBytes = 16 << 10;

struct Header {
  uint32_t length;
  uint32_t checksum;
};
static_assert(sizeof(Header) == kHeaderBytes);

uint32_t Checksum(std::string_view bytes) {
  // The length is the seed, so that a run of zero bytes is not a valid record.
  return XXH32(bytes.data(), bytes.size(), static_cast<uint32_t>(bytes.size()) + 1);
}

absl::Status IoError(const std::string& path, const char* what) {
  return Error(errno == ENOSPC || errno == EDQUOT ? absl::StatusCode::kResourceExhausted
                                                  : absl::StatusCode::kUnavailable,
               errno == ENOSPC || errno == EDQUOT ? reason::kDiskInsufficient : reason::kIoError,
               absl::StrCat(path, ": ", what, ": ", std::strerror(errno)), {{"file", path}});
}

}  // namespace

absl::StatusOr<SegmentWriter> SegmentWriter::Open(const std::string& path) {
  SegmentWriter writer(path);
  writer.fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (writer.fd_ < 0) return IoError(path, "cannot open");
  SegmentReader reader(path);
  PENSTOCK_ASSIGN_OR_RETURN(writer.records_, reader.Skip(INT64_MAX));
  writer.end_ = reader.offset();
  struct stat info {};
  if (fstat(writer.fd_, &info) != 0) return IoError(path, "cannot read the size");
  writer.cut_bytes_ = info.st_size - writer.end_;
  if (writer.cut_bytes_ > 0 && ftruncate(writer.fd_, writer.end_) != 0) {
    return IoError(path, "cannot cut the torn tail");
  }
  return writer;
}

SegmentWriter::SegmentWriter(SegmentWriter&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      records_(other.records_),
      end_(other.end_),
      cut_bytes_(other.cut_bytes_) {}

SegmentWriter& SegmentWriter::operator=(SegmentWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(records_, other.records_);
  std::swap(end_, other.end_);
  std::swap(cut_bytes_, other.cut_bytes_);
  return *this;
}

SegmentWriter::~SegmentWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status SegmentWriter::Append(std::string_view record) {
  const auto size = static_cast<int64_t>(record.size());
  if (size == 0 || size > kMaxSegmentRecordBytes) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
                 absl::StrCat(path_, ": a record has ", size, " bytes; 1 to ",
                              kMaxSegmentRecordBytes, " are possible"));
  }
  const Header header{.length = static_cast<uint32_t>(size), .checksum = Checksum(record)};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(record);
  const ssize_t written = pwrite(fd_, bytes.data(), bytes.size(), end_);
  if (written != static_cast<ssize_t>(bytes.size())) {
    if (written >= 0) errno = ENOSPC;
    const absl::Status error = IoError(path_, "cannot append");
    // Readers stop at a torn record and the next append overwrites it, so a failed cut is no loss.
    if (ftruncate(fd_, end_) != 0) return Annotate(error, "and cannot cut the tail");
    return error;
  }
  end_ += written;
  ++records_;
  return absl::OkStatus();
}

SegmentReader::~SegmentReader() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<bool> SegmentReader::Fill(int64_t bytes) {
  const auto have = [&] { return buffer_start_ + static_cast<int64_t>(buffer_.size()) - offset_; };
  if (offset_ >= buffer_start_ && have() >= bytes) return true;
  if (fd_ < 0) {
    fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd_ < 0 && errno == ENOENT) return false;
    if (fd_ < 0) return IoError(path_, "cannot open");
  }
  buffer_start_ = offset_;
  buffer_.resize(static_cast<size_t>(std::max(bytes, kReadBytes)));
  const ssize_t got = pread(fd_, buffer_.data(), buffer_.size(), offset_);
  if (got < 0) {
    buffer_.clear();
    return IoError(path_, "cannot read");
  }
  buffer_.resize(static_cast<size_t>(got));
  return have() >= bytes;
}

absl::StatusOr<std::optional<std::string>> SegmentReader::Next() {
  PENSTOCK_ASSIGN_OR_RETURN(const bool has_header, Fill(kHeaderBytes));
  // At the end the buffer is dropped, so that the next call sees what was written since.
  const auto end = [this] {
    buffer_.clear();
    return std::nullopt;
  };
  if (!has_header) return end();
  Header header;
  std::memcpy(&header, buffer_.data() + (offset_ - buffer_start_), sizeof header);
  if (header.length == 0 || header.length > kMaxSegmentRecordBytes) return end();
  PENSTOCK_ASSIGN_OR_RETURN(const bool whole, Fill(kHeaderBytes + header.length));
  if (!whole) return end();
  std::string record =
      buffer_.substr(static_cast<size_t>(offset_ - buffer_start_ + kHeaderBytes), header.length);
  if (Checksum(record) != header.checksum) return end();
  offset_ += kHeaderBytes + header.length;
  ++index_;
  return record;
}

absl::StatusOr<int64_t> SegmentReader::Skip(int64_t count) {
  int64_t skipped = 0;
  while (skipped < count) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string> record, Next());
    if (!record) break;
    ++skipped;
  }
  return skipped;
}

void SegmentReader::Seek(int64_t index, int64_t offset) {
  index_ = index;
  offset_ = offset;
}

}  // namespace penstock::server
