#include "engine/data/row_splitter.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/data/line_reader.h"

namespace penstock {
namespace {

absl::Status Refuse(const std::string& path, int64_t line, const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
               absl::StrCat(path, ":", line, ": ", message),
               {{"path", path}, {"line", absl::StrCat(line)}});
}

bool IsSpace(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); }

std::string Shown(char c) {
  return absl::StrCat("'", absl::CHexEscape(absl::string_view(&c, 1)), "'");
}

class LineSplitter final : public RowSplitter {
 public:
  LineSplitter(InputFile& file, int64_t max_row_bytes) : lines_(file, max_row_bytes) {}

  absl::StatusOr<std::optional<RawRow>> Next() override {
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string_view> line, lines_.Next());
      if (!line) return std::nullopt;
      if (std::all_of(line->begin(), line->end(), IsSpace)) continue;
      return RawRow{*line, lines_.line_number(), 1};
    }
  }

 private:
  LineReader lines_;
};

// Characters of a file one by one, with their place, and the row that is being put together.
class Characters {
 public:
  Characters(InputFile& file, int64_t max_row_bytes)
      : file_(file),
        max_row_bytes_(max_row_bytes),
        buffer_(std::clamp<int64_t>(file.size(), 1, kReadBytes), '\0') {}

  // The next character, or nullopt at the end.
  absl::StatusOr<std::optional<char>> Peek() {
    if (at_ == filled_) {
      PENSTOCK_ASSIGN_OR_RETURN(filled_, file_.Read(buffer_));
      at_ = 0;
      if (filled_ == 0) return std::nullopt;
    }
    return buffer_[at_];
  }
  // REQUIRES: Peek() has just given a character.
  void Skip() {
    ++column_;
    if (buffer_[at_++] == '\n') {
      ++line_;
      column_ = 1;
    }
  }
  void BeginRow() {
    row_.clear();
    row_line_ = line_;
    row_column_ = column_;
  }
  // Skip(), and the character belongs to the row.
  absl::Status Take() {
    if (static_cast<int64_t>(row_.size()) == max_row_bytes_) {
      return Refuse(
          file_.path(), row_line_,
          absl::StrCat("the row that begins here has more than ", FormatBytes(max_row_bytes_),
                       ", the longest allowed; split it into several rows"));
    }
    row_.push_back(buffer_[at_]);
    Skip();
    return absl::OkStatus();
  }
  void DropLast() { row_.pop_back(); }

  const std::string& row() const { return row_; }
  RawRow TheRow() const { return {row_, row_line_, row_column_}; }
  int64_t row_line() const { return row_line_; }
  int64_t line() const { return line_; }
  const std::string& path() const { return file_.path(); }

 private:
  InputFile& file_;
  const int64_t max_row_bytes_;
  std::string buffer_;
  int64_t at_ = 0;
  int64_t filled_ = 0;
  int64_t line_ = 1;
  int64_t column_ = 1;
  std::string row_;
  int64_t row_line_ = 1;
  int64_t row_column_ = 1;
};

// Finds the commas between elements by counting brackets outside strings; whether an element is
// JSON is its parser's business.
class ArraySplitter final : public RowSplitter {
 public:
  ArraySplitter(InputFile& file, int64_t max_row_bytes) : characters_(file, max_row_bytes) {}

  absl::StatusOr<std::optional<RawRow>> Next() override {
    if (done_) return std::nullopt;
    PENSTOCK_ASSIGN_OR_RETURN(std::optional<char> next, SkipSpace());
    if (!began_) {
      if (next != '[') {
        return Refuse(characters_.path(), characters_.line(),
                      absl::StrCat("found ", next ? Shown(*next) : "the end of the file",
                                   ", expected '[', the start of an array of rows"));
      }
      began_ = true;
      characters_.Skip();
      PENSTOCK_ASSIGN_OR_RETURN(next, SkipSpace());
      if (next == ']') {
        characters_.Skip();
        PENSTOCK_RETURN_IF_ERROR(End());
        return std::nullopt;
      }
    }
    return Element();
  }

 private:
  absl::StatusOr<std::optional<char>> SkipSpace() {
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const std::optional<char> next, characters_.Peek());
      if (!next || !IsSpace(*next)) return next;
      characters_.Skip();
    }
  }

  absl::StatusOr<std::optional<RawRow>> Element() {
    characters_.BeginRow();
    int64_t depth = 0;
    bool in_string = false, escaped = false;
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const std::optional<char> next, characters_.Peek());
      if (!next) return EndsInside();
      const char c = *next;
      if (in_string) {
        in_string = escaped || c != '"';
        escaped = !escaped && c == '\\';
      } else if (depth == 0 && (c == ',' || c == ']')) {
        characters_.Skip();
        if (c == ']') PENSTOCK_RETURN_IF_ERROR(End());
        return characters_.TheRow();
      } else if (c == '"') {
        in_string = true;
      } else if (c == '[' || c == '{') {
        ++depth;
      } else if (c == ']' || c == '}') {
        depth = std::max<int64_t>(0, depth - 1);
      }
      PENSTOCK_RETURN_IF_ERROR(characters_.Take());
    }
  }

  // After the closing bracket.
  absl::Status End() {
    done_ = true;
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<char> next, SkipSpace());
    if (!next) return absl::OkStatus();
    return Refuse(characters_.path(), characters_.line(),
                  absl::StrCat("found ", Shown(*next),
                               " after the array of rows, expected the end of the file; is it two "
                               "files in one?"));
  }

  absl::Status EndsInside() const {
    return Refuse(characters_.path(), characters_.row_line(),
                  "the file ends inside the row that begins here, expected ',' or ']' after it; "
                  "the file is cut off or a quote or bracket is missing");
  }

  Characters characters_;
  bool began_ = false;
  bool done_ = false;
};

class CsvSplitter final : public RowSplitter {
 public:
  CsvSplitter(InputFile& file, char separator, int64_t max_row_bytes)
      : characters_(file, max_row_bytes), separator_(separator) {}

  absl::StatusOr<std::optional<RawRow>> Next() override {
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const bool more, ReadRecord());
      if (!characters_.row().empty()) return characters_.TheRow();
      if (!more) return std::nullopt;
    }
  }

 private:
  // kClosed: after a quote that ends a field, or is the first half of a doubled one.
  enum class State { kFieldStart, kPlain, kQuoted, kClosed };

  // False if the file ended.
  absl::StatusOr<bool> ReadRecord() {
    characters_.BeginRow();
    State state = State::kFieldStart;
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const std::optional<char> next, characters_.Peek());
      if (!next || (*next == '\n' && state != State::kQuoted)) {
        if (state == State::kQuoted) return NotClosed();
        if (absl::EndsWith(characters_.row(), "\r")) characters_.DropLast();
        if (next) characters_.Skip();
        return next.has_value();
      }
      state = After(state, *next);
      PENSTOCK_RETURN_IF_ERROR(characters_.Take());
    }
  }

  State After(State state, char c) const {
    if (state == State::kQuoted) return c == '"' ? State::kClosed : State::kQuoted;
    if (c == separator_) return State::kFieldStart;
    if (c == '"' && state != State::kPlain) return State::kQuoted;
    return state == State::kClosed && c == '\r' ? State::kClosed : State::kPlain;
  }

  absl::Status NotClosed() const {
    return Refuse(characters_.path(), characters_.row_line(),
                  "the file ends inside a quoted field of the row that begins here, expected its "
                  "closing quote; the file is cut off or a quote is missing (a quote in a field is "
                  "written twice)");
  }

  Characters characters_;
  const char separator_;
};

}  // namespace

std::string_view ToText(FileKind kind) {
  switch (kind) {
    case FileKind::kJsonLines:
      return "JSON lines";
    case FileKind::kJsonArray:
      return "a JSON array";
    case FileKind::kCsv:
      return "CSV";
    case FileKind::kTsv:
      return "TSV";
  }
  return "";
}

absl::StatusOr<FileKind> DetectFileKind(const InputFile& file) {
  const std::string name = absl::AsciiStrToLower(file.path());
  if (absl::EndsWith(name, ".csv")) return FileKind::kCsv;
  if (absl::EndsWith(name, ".tsv")) return FileKind::kTsv;
  const std::string_view head = file.head();
  const auto first = std::find_if_not(head.begin(), head.end(), IsSpace);
  if (first == head.end() || *first == '{') return FileKind::kJsonLines;
  if (*first == '[') return FileKind::kJsonArray;
  return Refuse(file.path(), 1 + std::count(head.begin(), first, '\n'),
                absl::StrCat("found ", Shown(*first),
                             ", expected '{' or '[': rows are lines of JSON, one JSON array, or "
                             "CSV in a file whose name ends in .csv or .tsv"));
}

std::unique_ptr<RowSplitter> RowSplitter::Create(InputFile& file, FileKind kind,
                                                 int64_t max_row_bytes) {
  switch (kind) {
    case FileKind::kJsonLines:
      return std::make_unique<LineSplitter>(file, max_row_bytes);
    case FileKind::kJsonArray:
      return std::make_unique<ArraySplitter>(file, max_row_bytes);
    case FileKind::kCsv:
      return std::make_unique<CsvSplitter>(file, ',', max_row_bytes);
    case FileKind::kTsv:
      return std::make_unique<CsvSplitter>(file, '\t', max_row_bytes);
  }
  return nullptr;
}

}  // namespace penstock
