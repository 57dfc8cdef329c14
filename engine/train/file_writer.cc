#include "engine/train/file_writer.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"

namespace penstock {

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
                                              const std::string& name) {
  const std::string path = absl::StrCat(directory, "/", name);
  FileDescriptor fd(
      openat(directory_fd, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  FileWriter writer(std::move(fd), path, name);
  if (!writer.fd_.valid()) return writer.Failure("create", errno, 0);
  return writer;
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
  file_.bytes += static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const ssize_t written = write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return Failure("write", written == 0 ? EIO : errno, static_cast<int64_t>(bytes.size()));
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::StatusOr<WrittenFile> FileWriter::Finish() {
  if (fsync(fd_.get()) != 0) return Failure("flush", errno, 0);
  // Nobody reads it soon, and the cache would compete with the store. Only a hint.
  posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (const int error = fd_.Close(); error != 0) return Failure("close", error, 0);
  file_.xxh3 = hash_.Digest();
  return file_;
}

absl::StatusOr<WrittenFile> WriteWholeFile(int directory_fd, const std::string& directory,
                                           const std::string& name, std::string_view content) {
  PENSTOCK_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(directory_fd, directory, name));
  PENSTOCK_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(content))));
  return writer.Finish();
}

}  // namespace penstock
