// Reads the files of a data source as a stream of tokenized documents.
//
//   text          each file is one document, or each run of lines between blank lines
//   rows          JSON lines, JSON arrays, CSV: each row is an example (engine/data/row_format.h)
//                 and an example is a document
//   JSONL of ids  each line is a row (engine/data/token_row.h) and a row is a document
//
// A UTF-8 byte-order mark is no text; CRLF ends a line as LF does; the last line needs no end;
// blank lines carry no row. A line of NUL bytes (what a crash leaves of a file) carries none
// either, and is reported. Every other line is used, or is a bad row: lines in = rows used +
// rows reported + blank lines.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/format_spec.h"
#include "engine/data/input_file.h"

namespace penstock {

class ExampleEncoder;

enum class DataFormat : uint8_t { kText, kTokenIdsJsonl, kRows };
enum class TextDocuments : uint8_t { kWholeFile, kBlankLine };
// What a row that does not parse does: ends the reading, or is skipped, counted and reported.
enum class BadRowPolicy : uint8_t { kRefuse, kSkip };

struct RowSource {
  std::optional<FormatSpec> format = {};  // none: found by the columns of the first row
  std::optional<int64_t> max_rows = {};   // of all files together; the first ones
};

struct DataSource {
  DataFormat format = DataFormat::kText;
  std::vector<std::string> paths = {};  // checked against the allowed roots by the caller
  TextDocuments text_documents = TextDocuments::kWholeFile;  // kText only
  RowSource rows = {};                                       // kRows only
  BadRowPolicy on_bad_row = BadRowPolicy::kRefuse;
  int64_t max_bad_rows = 100;  // skipping more than this ends the reading
};

// One of the datasets of a job.
struct DatasetSource {
  std::string name = {};  // for people
  DataSource source = {};
  double weight = 1;  // how often an epoch of the job has its rows: engine/data/mixture.h
};

inline constexpr int64_t kMaxLineBytes = int64_t{64} << 20;
// A longer text document goes to the tokenizer in pieces of at most this size, which several
// threads share.
inline constexpr int64_t kEncodePieceBytes = int64_t{4} << 20;
// They work on groups of pieces of about so many bytes.
inline constexpr int64_t kTextGroupBytes = 8 * kEncodePieceBytes;

// `file` is an index of DataSource::paths; lines count from 1.
struct SourceLocation {
  int64_t file = 0;
  int64_t line = 0;
};

// "path:line".
std::string ToText(const SourceLocation& location, std::span<const std::string> paths);

enum class NoteKind : uint8_t {
  kBadRow,          // left out: broken, or not what its format asks for
  kTooLong,         // left out: longer than examples may be
  kNothingToLearn,  // left out: no token of it would be learned
  kTruncated,       // used without its end
  kFact,            // of the whole source: "format alpaca, found by ..."; has no location
};
inline constexpr int kNoteKinds = 5;

// What people should know about a row, or the source.
struct SourceNote {
  NoteKind kind = NoteKind::kFact;
  SourceLocation location = {};
  int64_t column = 1;
  std::string text = {};
};

// Receives the documents in order. A status that is not OK ends the reading with it.
class DocumentSink {
 public:
  virtual ~DocumentSink() = default;
  // More tokens of the current document. `trained` is empty (all of them) or as long as `ids`,
  // with 0 for an id that is no label.
  virtual absl::Status Append(std::span<const int32_t> ids, std::span<const uint8_t> trained) = 0;
  // Called only after at least one token.
  virtual absl::Status EndDocument(const SourceLocation& start) = 0;
  virtual absl::Status Note(const SourceNote& note) = 0;
};

// DATA_INVALID unless there is at least one path, and not absurdly many, and the numbers make
// sense. Does not look at the files.
absl::Status Validate(const DataSource& source);

struct ReadArgs {
  const ExampleEncoder* encoder = nullptr;  // not used for ids
  int threads = 1;                          // the same
  ReadProgress progress = nullptr;
};

// Reads all files in order into `sink`; returns the content hash of each, of exactly the bytes
// that were read. What the sink gets does not depend on the number of threads. Memory is bounded,
// whatever the files' sizes: kMaxLineBytes, kTextGroupBytes, kRowGroupBytes.
absl::StatusOr<std::vector<std::string>> ReadDocuments(const DataSource& source,
                                                       const ReadArgs& args, DocumentSink& sink);

// The content hashes that ReadDocuments() would return, without parsing.
absl::StatusOr<std::vector<std::string>> HashFiles(const std::vector<std::string>& paths,
                                                   const ReadProgress& progress);

}  // namespace penstock
