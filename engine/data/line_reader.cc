#include "engine/data/line_reader.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"

namespace penstock {

LineReader::LineReader(InputFile& file, int64_t max_line_bytes)
    : file_(file), max_line_bytes_(max_line_bytes) {}

absl::StatusOr<bool> LineReader::FillMore() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  const size_t filled = buffer_.size();
  const int64_t room = std::clamp<int64_t>(file_.size(), 1, kReadBytes);
  buffer_.resize(filled + static_cast<size_t>(room));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t got,
                            file_.Read(std::span(buffer_.data() + filled, room)));
  buffer_.resize(filled + static_cast<size_t>(got));
  return got > 0;
}

absl::Status LineReader::TooLong() const {
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
               absl::StrCat(file_.path(), ":", line_number_, ": the line has more than ",
                            FormatBytes(max_line_bytes_),
                            ", the longest allowed; split the document into several lines"),
               {{"path", file_.path()}, {"line", absl::StrCat(line_number_)}});
}

absl::StatusOr<std::optional<std::string_view>> LineReader::Next() {
  ++line_number_;
  size_t scanned = 0;  // bytes after begin_ known to hold no line end
  for (;;) {
    const size_t end = buffer_.find('\n', begin_ + scanned);
    if (end != std::string::npos) {
      std::string_view line(buffer_.data() + begin_, end - begin_);
      begin_ = end + 1;
      if (static_cast<int64_t>(line.size()) > max_line_bytes_) return TooLong();
      if (line.ends_with('\r')) line.remove_suffix(1);
      return line;
    }
    scanned = buffer_.size() - begin_;
    if (static_cast<int64_t>(scanned) > max_line_bytes_) return TooLong();
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, FillMore());
    if (more) continue;
    if (scanned == 0) return std::nullopt;
    std::string_view line = buffer_;
    begin_ = buffer_.size();
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }
}

}  // namespace penstock
