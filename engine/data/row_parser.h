// The text of a row as an object: column names and values, in the order of the file. Pure, so
// that several threads may parse the rows of one splitter.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/row_error.h"
#include "engine/data/row_splitter.h"
#include "nlohmann/json.hpp"

namespace penstock {

// Columns of a row, and keys of an object in it, at most.
inline constexpr int64_t kMaxColumns = 4096;

// Cuts a CSV record into fields: quotes taken off, doubled quotes made single. Refuses a quote in
// a field that does not begin with one, text after a closing quote, bytes that are not UTF-8, NUL
// bytes and too many fields.
std::optional<RowError> ParseCsvRecord(std::string_view record, char separator,
                                       std::vector<std::string>& fields);

class RowParser {
 public:
  // For CSV and TSV, `header` is the file's first record. A problem of the header is one of the
  // file: an empty name (allowed once, as pandas writes its index) or two equal names.
  static std::optional<RowError> Create(FileKind kind, std::string_view header, RowParser& parser);

  // The row as an object. CSV values are strings. Refuses what is not one JSON object, broken
  // UTF-8, equal keys, nesting deeper than 64, more than a million values, a CSV record with more
  // or fewer fields than there are columns.
  std::optional<RowError> Parse(std::string_view text, nlohmann::ordered_json& row) const;

 private:
  std::optional<RowError> ParseCsv(std::string_view text, nlohmann::ordered_json& row) const;

  FileKind kind_ = FileKind::kJsonLines;
  std::vector<std::string> columns_;
};

// Whether rows of this kind need the file's first record to be understood.
bool HasHeader(FileKind kind);

}  // namespace penstock
