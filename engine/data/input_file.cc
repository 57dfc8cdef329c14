#include "engine/data/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr size_t kHeadBytes = 64;

struct ForeignFormat {
  const char* magic;
  const char* name;
  const char* remedy;
};

constexpr const char* kFromParquet =
    "convert it to lines of JSON: python3 -c \"import sys, pandas; "
    "pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], orient='records', lines=True, "
    "force_ascii=False)\" in.parquet out.jsonl";
constexpr const char* kFromArrow =
    "convert it to lines of JSON: python3 -c \"import sys, pandas; "
    "pandas.read_feather(sys.argv[1]).to_json(sys.argv[2], orient='records', lines=True, "
    "force_ascii=False)\" in.arrow out.jsonl";

// Only signatures that no text starts with, or that are never meant to be trained on.
constexpr std::array<ForeignFormat, 10> kForeignFormats = {{
    {"\x1f\x8b", "gzip", "decompress it with gunzip"},
    {"\x28\xb5\x2f\xfd", "Zstandard", "decompress it with unzstd"},
    {"\xfd"
     "7zXZ",
     "xz", "decompress it with unxz"},
    {"BZh91AY&SY", "bzip2", "decompress it with bunzip2"},
    {"PK\x03\x04", "zip", "unpack it"},
    {"PAR1", "Parquet", kFromParquet},
    {"ARROW1", "Arrow (Feather)", kFromArrow},
    {"\xff\xfe", "UTF-16 (little-endian) text", "convert it with iconv -f UTF-16 -t UTF-8"},
    {"\xfe\xff", "UTF-16 (big-endian) text", "convert it with iconv -f UTF-16 -t UTF-8"},
    {"version https://git-lfs.github.com/spec/", "Git LFS pointer",
     "fetch the real file with git lfs pull"},
}};

absl::Status IoError(const std::string& path, const char* action, int error) {
  const auto code = error == ENOENT   ? absl::StatusCode::kNotFound
                    : error == EACCES ? absl::StatusCode::kPermissionDenied
                                      : absl::StatusCode::kInternal;
  return Error(code, reason::kIoError,
               absl::StrCat("data file ", path, ": cannot ", action, ": ", std::strerror(error),
                            "; give the path of a file that the worker can read"),
               {{"path", path}});
}

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path, ReadProgress progress) {
  // O_NONBLOCK: opening a FIFO without a writer would wait for one.
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return IoError(path, "open it", errno);
  InputFile file(path, fd, 0, std::move(progress));
  struct stat info = {};
  if (fstat(fd, &info) != 0) return IoError(path, "stat it", errno);
  if (!S_ISREG(info.st_mode)) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
                 absl::StrCat("data file ", path, " is ", KindOf(info.st_mode),
                              ", a regular file is wanted; list files one by one"),
                 {{"path", path}});
  }
  file.size_ = info.st_size;
  posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  PENSTOCK_RETURN_IF_ERROR(file.ReadHead());
  return file;
}

InputFile::InputFile(std::string path, int fd, int64_t size, ReadProgress progress)
    : path_(std::move(path)), fd_(fd), size_(size), progress_(std::move(progress)) {}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      read_bytes_(other.read_bytes_),
      progress_(std::move(other.progress_)),
      hash_(std::move(other.hash_)),
      head_(std::move(other.head_)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(read_bytes_, other.read_bytes_);
  std::swap(progress_, other.progress_);
  std::swap(hash_, other.hash_);
  std::swap(head_, other.head_);
  return *this;
}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<int64_t> InputFile::ReadRaw(std::span<char> buffer) {
  ssize_t got = 0;
  do {
    got = read(fd_, buffer.data(), buffer.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) return IoError(path_, "read it", errno);
  read_bytes_ += got;
  if (read_bytes_ > size_) return Grown();  // a log that grows as we read would never end
  hash_.Update(buffer.data(), got);
  if (progress_ && got > 0) PENSTOCK_RETURN_IF_ERROR(progress_(got));
  return int64_t{got};
}

absl::Status InputFile::Grown() const {
  return Error(absl::StatusCode::kFailedPrecondition, reason::kDataInvalid,
               absl::StrCat("data file ", path_, " had ", size_,
                            " bytes when opened and has grown while it was read; submit again "
                            "when it is complete"),
               {{"path", path_}});
}

absl::Status InputFile::ReadHead() {
  head_.resize(kHeadBytes);
  size_t filled = 0;
  while (filled < kHeadBytes) {
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t got,
                              ReadRaw(std::span(head_.data() + filled, kHeadBytes - filled)));
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  head_.resize(filled);
  for (const ForeignFormat& format : kForeignFormats) {
    if (!head_.starts_with(format.magic)) continue;
    return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
                 absl::StrCat("data file ", path_, " is ", format.name,
                              ", plain text or lines of JSON are wanted; ", format.remedy),
                 {{"path", path_}, {"detected_format", format.name}});
  }
  if (head_.starts_with(kByteOrderMark)) head_.erase(0, kByteOrderMark.size());
  return absl::OkStatus();
}

absl::StatusOr<int64_t> InputFile::Read(std::span<char> buffer) {
  if (head_.empty() || buffer.empty()) return ReadRaw(buffer);
  const size_t count = std::min(head_.size(), buffer.size());
  std::memcpy(buffer.data(), head_.data(), count);
  head_.erase(0, count);
  return static_cast<int64_t>(count);
}

}  // namespace penstock
