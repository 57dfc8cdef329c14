#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/data/input_file.h"

namespace penstock {

// Cuts an InputFile into lines. Memory is bounded by the longest line allowed.
class LineReader {
 public:
  // `file` must outlive the reader.
  LineReader(InputFile& file, int64_t max_line_bytes);

  // The next line without its end ("\n" or "\r\n"; the last line needs none), or nullopt after
  // the last. Valid until the next call. DATA_INVALID, naming file and line, for a line of more
  // than max_line_bytes.
  absl::StatusOr<std::optional<std::string_view>> Next();

  // Of the line that Next() gave last; the first is 1.
  int64_t line_number() const { return line_number_; }

 private:
  absl::StatusOr<bool> FillMore();
  absl::Status TooLong() const;

  InputFile& file_;
  const int64_t max_line_bytes_;
  std::string buffer_;
  size_t begin_ = 0;  // start of the bytes not yet given out
  int64_t line_number_ = 0;
};

}  // namespace penstock
