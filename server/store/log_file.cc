#include "server/store/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock::server {
namespace {

constexpr size_t kMaxLastLineBytes = 1 << 10;

// Length of the valid sequence at the head of `bytes`, or 0. No overlong forms, no surrogates.
size_t SequenceLength(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || bytes.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xE0 && at(1) < 0xA0) || (lead == 0xF0 && at(1) < 0x90);
  const bool not_a_character = (lead == 0xED && at(1) > 0x9F) || (lead == 0xF4 && at(1) > 0x8F);
  return overlong || not_a_character ? 0 : length;
}

absl::Status IoError(const std::string& path, const char* what) {
  return Error(absl::StatusCode::kUnavailable, reason::kIoError,
               absl::StrCat(path, ": ", what, ": ", std::strerror(errno)), {{"file", path}});
}

// Up to `max_bytes` from `offset`.
absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset, int64_t max_bytes) {
  if (offset > static_cast<uint64_t>(INT64_MAX)) return std::string();
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 && errno == ENOENT) return std::string();
  if (fd < 0) return IoError(path, "cannot open");
  std::string bytes(static_cast<size_t>(max_bytes), '\0');
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  close(fd);
  if (got < 0) return IoError(path, "cannot read");
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

}  // namespace

std::string ValidUtf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t length = SequenceLength(bytes);
    if (length == 0) {
      text.append("\xEF\xBF\xBD");
    } else {
      text.append(bytes.substr(0, length));
    }
    bytes.remove_prefix(std::max<size_t>(length, 1));
  }
  return text;
}

absl::StatusOr<LogBatch> ReadLog(const std::string& path, uint64_t offset, int64_t max_bytes,
                                 LogTail tail) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string bytes,
                            ReadRange(path, offset, std::max(max_bytes, kMaxLogLineBytes + 1)));
  LogBatch batch;
  batch.next_offset = offset;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const size_t newline = rest.substr(0, kMaxLogLineBytes + 1).find('\n');
    size_t line = newline;
    size_t consumed = newline + 1;
    if (newline == std::string_view::npos) {
      if (rest.size() > kMaxLogLineBytes) {
        line = consumed = kMaxLogLineBytes;
      } else if (tail == LogTail::kFinal &&
                 offset + bytes.size() >= static_cast<uint64_t>(FileSize(path))) {
        line = consumed = rest.size();
      } else {
        break;
      }
    }
    batch.lines.push_back(ValidUtf8(rest.substr(0, line)));
    rest.remove_prefix(consumed);
    batch.next_offset += consumed;
  }
  return batch;
}

std::vector<std::string> LastLogLines(const std::string& path, int max_lines) {
  const int64_t wanted = static_cast<int64_t>(max_lines) * static_cast<int64_t>(kMaxLastLineBytes);
  const int64_t size = FileSize(path);
  const int64_t start = std::max<int64_t>(0, size - wanted);
  const absl::StatusOr<std::string> bytes =
      ReadRange(path, static_cast<uint64_t>(start), size - start);
  if (!bytes.ok()) return {absl::StrCat("(", bytes.status().message(), ")")};
  std::vector<std::string> lines;
  std::string_view rest = *bytes;
  if (start > 0) rest.remove_prefix(std::min(rest.size(), rest.find('\n') + 1));
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    lines.push_back(ValidUtf8(rest.substr(0, std::min(end, kMaxLastLineBytes))));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (lines.size() > static_cast<size_t>(max_lines)) {
    lines.erase(lines.begin(), lines.end() - max_lines);
  }
  return lines;
}

int64_t FileSize(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_size : 0;
}

}  // namespace penstock::server
