// The documents of files of rows. One thread cuts a file into rows; parsing, rendering and
// tokenizing, which is nearly all of the work, is shared by several, many rows at a time. What
// comes out is in the order of the file and does not depend on how many threads there are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/thread_pool.h"
#include "engine/data/bad_rows.h"
#include "engine/data/example_encoder.h"
#include "engine/data/input_file.h"
#include "engine/data/row_format.h"
#include "engine/data/row_parser.h"
#include "engine/data/source.h"

namespace penstock {

// Rows are worked on in groups of at most so many bytes, or one row if it has more.
inline constexpr int64_t kRowGroupBytes = int64_t{4} << 20;
inline constexpr int64_t kRowGroupRows = 4096;
// A template may make much of a short row. Once a group's rows have so many tokens, what is done
// is given out before more is begun.
inline constexpr int64_t kRowGroupTokens = int64_t{16} << 20;
// So many rows for each thread are worked on between two looks at whether to go on.
inline constexpr int64_t kRowsPerLook = 16;

// Reads the files of one source, one after the other.
class RowDocuments {
 public:
  struct Args {
    const DataSource* source = nullptr;
    const ExampleEncoder* encoder = nullptr;
    ThreadPool* pool = nullptr;
    BadRows* bad_rows = nullptr;
    DocumentSink* sink = nullptr;
    ReadProgress progress = nullptr;  // asked also while no byte is read, which may take long
  };
  explicit RowDocuments(const Args& args);

  absl::Status ReadFile(InputFile& file, int64_t file_index);

  // After the last file. DATA_INVALID if a column that was asked for by name is in no row. Tells
  // the sink what was found: the format, columns without use.
  absl::Status Finish();

  // Rows that are no bad rows.
  int64_t read() const { return read_; }
  // No more rows are wanted: max_rows were there.
  bool full() const { return rows_left_ == 0; }

 private:
  struct Row {
    std::string text;
    SourceLocation location;
    int64_t column = 1;
    // What became of it.
    bool done = false;
    std::optional<RowError> error;
    EncodeResult result;
    EncodedExample encoded;
    uint64_t named_columns = 0;  // bit i: it has named_[i]
  };

  absl::Status EncodeGroup(const RowParser& parser);
  absl::Status LookAtFirstRow(const RowParser& parser);
  void UseFormat(const FormatSpec& format);
  void EncodeRows(const RowParser& parser, std::span<Row> rows) const;
  void EncodeRow(const RowParser& parser, Row& row) const;
  absl::Status GiveOut(const Row& row);

  Args args_;
  std::optional<FormatSpec> format_;
  std::string format_origin_;
  std::string unused_columns_;      // of the first row
  std::vector<std::string> named_;  // columns with Column::Need::kNamed
  uint64_t named_found_ = 0;
  int64_t rows_left_ = -1;  // -1: no limit
  int64_t read_ = 0;
  int64_t straddling_ = 0;
  std::vector<Row> group_;
  int64_t group_bytes_ = 0;
};

}  // namespace penstock
