// Cuts a data file into the texts of its rows, without looking further into them. That is fast,
// so that one thread can feed several that parse (engine/data/row_parser.h).
//
//   JSON lines   every line that is not blank is a row
//   JSON array   the file is one array, its elements are the rows
//   CSV, TSV     RFC 4180: records separated by line ends; a quoted field may hold line ends,
//                separators and doubled quotes. The first record names the columns. Empty lines
//                are no rows
//
// Memory is bounded by the longest row allowed. What breaks the file rather than a row ends the
// reading: the rows after it cannot be told from its inside.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/data/input_file.h"

namespace penstock {

enum class FileKind : uint8_t { kJsonLines, kJsonArray, kCsv, kTsv };

std::string_view ToText(FileKind kind);  // "JSON lines"

// By the name's end for CSV and TSV (.csv, .tsv), else by the first character: `[` begins an
// array, `{` or nothing at all lines. DATA_INVALID for anything else.
absl::StatusOr<FileKind> DetectFileKind(const InputFile& file);

inline constexpr int64_t kMaxRowBytes = int64_t{64} << 20;

struct RawRow {
  std::string_view text;
  int64_t line = 0;    // of its first byte; the first is 1
  int64_t column = 1;  // of its first byte, in bytes; the first is 1
};

class RowSplitter {
 public:
  // `file` must outlive the splitter and be at its start.
  static std::unique_ptr<RowSplitter> Create(InputFile& file, FileKind kind,
                                             int64_t max_row_bytes = kMaxRowBytes);
  virtual ~RowSplitter() = default;

  // The next row, or nullopt after the last; valid until the next call. DATA_INVALID, naming file
  // and line, for a row of more than max_row_bytes and for a file that ends inside a row.
  virtual absl::StatusOr<std::optional<RawRow>> Next() = 0;
};

}  // namespace penstock
