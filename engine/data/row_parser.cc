#include "engine/data/row_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/utf8.h"
#include "engine/model/strict_json.h"

namespace penstock {
namespace {

constexpr JsonLimits kRowLimits = {.max_bytes = kMaxRowBytes,
                                   .max_depth = 64,
                                   .max_values = 1'000'000,
                                   .max_object_keys = kMaxColumns};

RowError ErrorAt(std::string_view text, size_t offset, std::string message) {
  const std::string_view before = text.substr(0, offset);
  const size_t line_start = before.rfind('\n') + 1;  // 0 if there is none
  return {static_cast<int64_t>(before.size() - line_start) + 1, std::move(message),
          std::count(before.begin(), before.end(), '\n')};
}

std::string Quoted(std::string_view name) {
  constexpr size_t kMaxShown = 60;
  const std::string_view shown = name.substr(0, kMaxShown);
  return absl::StrCat("\"", absl::Utf8SafeCEscape({shown.data(), shown.size()}),
                      name.size() > kMaxShown ? "...\"" : "\"");
}

char SeparatorOf(FileKind kind) { return kind == FileKind::kTsv ? '\t' : ','; }

// One field at a time; `at` is behind the separator.
class CsvFields {
 public:
  CsvFields(std::string_view record, char separator, std::vector<std::string>& fields)
      : record_(record), separator_(separator), fields_(fields) {}

  std::optional<RowError> Read() {
    fields_.clear();
    for (;;) {
      if (static_cast<int64_t>(fields_.size()) == kMaxColumns) {
        return At(absl::StrCat("more than ", kMaxColumns, " fields"));
      }
      fields_.emplace_back();
      const bool quoted = at_ < record_.size() && record_[at_] == '"';
      if (auto error = quoted ? ReadQuoted() : ReadPlain()) return error;
      if (at_ == record_.size()) return std::nullopt;
      ++at_;  // the separator
    }
  }

 private:
  std::optional<RowError> At(std::string message) const {
    return ErrorAt(record_, at_, std::move(message));
  }

  std::optional<RowError> ReadPlain() {
    const size_t begin = at_;
    at_ = std::min(record_.find(separator_, begin), record_.size());
    fields_.back() = record_.substr(begin, at_ - begin);
    const size_t quote = fields_.back().find('"');
    if (quote == std::string::npos) return std::nullopt;
    return ErrorAt(record_, begin + quote,
                   "a quote inside a field that does not begin with one; put the field in quotes "
                   "and write the quote twice");
  }

  std::optional<RowError> ReadQuoted() {
    for (++at_;;) {
      const size_t quote = record_.find('"', at_);
      if (quote == std::string_view::npos) {
        at_ = record_.size();
        return At("a quoted field without its closing quote");
      }
      fields_.back().append(record_.substr(at_, quote - at_));
      at_ = quote + 1;
      if (at_ == record_.size() || record_[at_] == separator_) return std::nullopt;
      if (record_[at_] != '"') {
        return At("text after the closing quote of a field; a quote in a field is written twice");
      }
      fields_.back().push_back('"');
      ++at_;
    }
  }

  const std::string_view record_;
  const char separator_;
  std::vector<std::string>& fields_;
  size_t at_ = 0;
};

}  // namespace

std::optional<RowError> ParseCsvRecord(std::string_view record, char separator,
                                       std::vector<std::string>& fields) {
  if (const size_t bad = FindInvalidUtf8(record); bad != std::string_view::npos) {
    return ErrorAt(
        record, bad,
        absl::StrCat("byte 0x", absl::Hex(static_cast<unsigned char>(record[bad]), absl::kZeroPad2),
                     " is not UTF-8; convert the file (iconv -f LATIN1 -t UTF-8, if it "
                     "is Latin-1)"));
  }
  if (const size_t nul = record.find('\0'); nul != std::string_view::npos) {
    return ErrorAt(record, nul, "a NUL byte");
  }
  return CsvFields(record, separator, fields).Read();
}

bool HasHeader(FileKind kind) { return kind == FileKind::kCsv || kind == FileKind::kTsv; }

std::optional<RowError> RowParser::Create(FileKind kind, std::string_view header,
                                          RowParser& parser) {
  parser.kind_ = kind;
  parser.columns_.clear();
  if (!HasHeader(kind)) return std::nullopt;
  if (auto error = ParseCsvRecord(header, SeparatorOf(kind), parser.columns_)) return error;
  std::vector<std::string> sorted = parser.columns_;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return std::nullopt;
  return RowError{1, absl::StrCat("two columns are named ", Quoted(*twice),
                                  "; the first record of a CSV file names its columns")};
}

std::optional<RowError> RowParser::ParseCsv(std::string_view text,
                                            nlohmann::ordered_json& row) const {
  std::vector<std::string> fields;
  if (auto error = ParseCsvRecord(text, SeparatorOf(kind_), fields)) return error;
  if (fields.size() != columns_.size()) {
    return RowError{1, absl::StrCat(fields.size(), " fields, expected ", columns_.size(),
                                    ", one for each column of the header")};
  }
  nlohmann::ordered_json::object_t object;
  object.reserve(fields.size());
  for (size_t i = 0; i < fields.size(); ++i) {
    // The header has no name twice, so there is nothing to look for.
    object.emplace_back(columns_[i], std::move(fields[i]));
  }
  row = std::move(object);
  return std::nullopt;
}

std::optional<RowError> RowParser::Parse(std::string_view text, nlohmann::ordered_json& row) const {
  if (HasHeader(kind_)) return ParseCsv(text, row);
  if (text.empty()) return RowError{1, "an empty row, a comma too many"};
  if (const auto problem = ParseOrderedJson(text, kRowLimits, row)) {
    return ErrorAt(text, std::min<size_t>(static_cast<size_t>(problem->offset), text.size()),
                   absl::StrCat("not valid JSON: ", problem->what));
  }
  if (row.is_object()) return std::nullopt;
  return RowError{1, absl::StrCat("found a JSON ", row.type_name(),
                                  ", expected an object whose keys are the columns")};
}

}  // namespace penstock
