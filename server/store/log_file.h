// Reading a worker's log: plain bytes that the worker appends to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock::server {

// Longer lines are cut into pieces of this size.
inline constexpr int64_t kMaxLogLineBytes = 16 << 10;

// Invalid UTF-8 replaced by U+FFFD, so that the text fits a proto string.
std::string ValidUtf8(std::string_view bytes);

enum class LogTail : uint8_t {
  kMayGrow,  // an unfinished last line is left for later
  kFinal,    // it is given as it is
};
struct LogBatch {
  std::vector<std::string> lines;
  uint64_t next_offset = 0;  // after the last byte of `lines`
};
// Whole lines from `offset` on, at most `max_bytes` of them (at least one line). No file reads as
// empty. An offset past the end gives nothing.
absl::StatusOr<LogBatch> ReadLog(const std::string& path, uint64_t offset, int64_t max_bytes,
                                 LogTail tail);

// The last lines, oldest first, each cut at 1 KiB; empty if there is no log.
std::vector<std::string> LastLogLines(const std::string& path, int max_lines);

// 0 if there is none.
int64_t FileSize(const std::string& path);

}  // namespace penstock::server
