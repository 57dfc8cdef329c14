#include "engine/train/file_writer.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"

namespace penstock {
namespace {

// What O_DIRECT asks buffers, offsets and sizes to be multiples of; most disks ask for less.
constexpr int64_t kBlockBytes = 4096;

}  // namespace

struct StreamHash::State {
  XXH3_state_t xxh3;
};

StreamHash::StreamHash() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->xxh3);
  XXH3_64bits_reset(&state_->xxh3);
}
StreamHash::StreamHash(StreamHash&&) noexcept = default;
StreamHash& StreamHash::operator=(StreamHash&&) noexcept = default;
StreamHash::~StreamHash() = default;

void StreamHash::Update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

uint64_t StreamHash::Digest() const { return XXH3_64bits_digest(&state_->xxh3); }

absl::StatusOr<FileWriter> FileWriter::Create(int directory_fd, const std::string& directory,
                                              const std::string& name, int64_t expected_bytes) {
  const std::string path = absl::StrCat(directory, "/", name);
  FileDescriptor fd(
      openat(directory_fd, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  FileWriter writer(std::move(fd), path, name);
  if (!writer.fd_.valid()) return writer.Failure("create", errno, 0);
  PENSTOCK_RETURN_IF_ERROR(writer.Reserve(expected_bytes));
  PENSTOCK_RETURN_IF_ERROR(writer.AllocateBuffer(expected_bytes));
  // Not when the file is opened: some file systems create it first and refuse then.
  if (expected_bytes >= kBufferBytes) writer.SetDirect(true);
  return writer;
}

absl::Status FileWriter::AllocateBuffer(int64_t expected_bytes) {
  capacity_ = static_cast<size_t>(
      std::min(kBufferBytes, RoundUp(std::max<int64_t>(1, expected_bytes), kBlockBytes)));
  buffer_.reset(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, capacity_)));
  if (buffer_ != nullptr) return absl::OkStatus();
  return Error(
      absl::StatusCode::kResourceExhausted, reason::kHostMemoryInsufficient,
      absl::StrCat("no memory for a buffer of ", capacity_, " bytes to write ", path_, " through"));
}

// Where this is refused, files are written through the page cache.
void FileWriter::SetDirect(bool direct) {
  const int flags = fcntl(fd_.get(), F_GETFL);
  if (flags < 0) return;
  if (fcntl(fd_.get(), F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0) {
    direct_ = direct;
  }
}

absl::Status FileWriter::Failure(const char* what, int error, int64_t bytes) const {
  const std::string message = absl::StrCat("cannot ", what, " ", path_, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return Error(absl::StatusCode::kResourceExhausted, reason::kDiskInsufficient,
                 absl::StrCat(message, "; ", FormatBytes(bytes),
                              " more are needed: free space or choose another place"),
                 {{"needed_bytes", absl::StrCat(bytes)}});
  }
  return Error(absl::StatusCode::kUnavailable, reason::kIoError, message);
}

absl::Status FileWriter::Reserve(int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  // KEEP_SIZE: a reader never takes reserved space for content.
  while (fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, 0, bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS) return absl::OkStatus();
    return Failure("reserve space for", errno, bytes);
  }
  return absl::OkStatus();
}

absl::Status FileWriter::Append(std::span<const std::byte> bytes) {
  hash_.Update(bytes);
  sha256_.Update(bytes);
  file_.bytes += static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.size(), capacity_ - filled_);
    std::memcpy(buffer_.get() + filled_, bytes.data(), count);
    filled_ += count;
    bytes = bytes.subspan(count);
    if (filled_ < capacity_) continue;
    PENSTOCK_RETURN_IF_ERROR(Write({buffer_.get(), filled_}));
    filled_ = 0;
  }
  return absl::OkStatus();
}

absl::Status FileWriter::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && direct_) {
      // It wants larger blocks, or took the flag and does not mean it.
      SetDirect(false);
      if (!direct_) continue;
    }
    if (written <= 0) {
      return Failure("write", written == 0 ? EIO : errno, static_cast<int64_t>(bytes.size()));
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    if (!bytes.empty() && direct_) SetDirect(false);  // the rest need not begin at a block
  }
  return absl::OkStatus();
}

absl::StatusOr<WrittenFile> FileWriter::Finish() {
  if (direct_ && filled_ % kBlockBytes != 0) SetDirect(false);
  PENSTOCK_RETURN_IF_ERROR(Write({buffer_.get(), filled_}));
  if (fsync(fd_.get()) != 0) return Failure("flush", errno, 0);
  // Nobody reads it soon, and the cache would compete with the store. Only a hint.
  posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (const int error = fd_.Close(); error != 0) return Failure("close", error, 0);
  file_.xxh3 = hash_.Digest();
  file_.sha256 = HexOf(sha256_.Finish());
  return file_;
}

absl::StatusOr<WrittenFile> WriteWholeFile(int directory_fd, const std::string& directory,
                                           const std::string& name, std::string_view content) {
  PENSTOCK_ASSIGN_OR_RETURN(
      FileWriter writer,
      FileWriter::Create(directory_fd, directory, name, static_cast<int64_t>(content.size())));
  PENSTOCK_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(content))));
  return writer.Finish();
}

}  // namespace penstock
