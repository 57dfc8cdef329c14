#include "engine/data/source.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/data/bad_rows.h"
#include "engine/data/line_reader.h"
#include "engine/data/row_documents.h"
#include "engine/data/text_documents.h"
#include "engine/data/token_row.h"

namespace penstock {
namespace {

constexpr int64_t kMaxFiles = int64_t{1} << 20;

absl::Status Refuse(const std::string& message, const ErrorMetadata& metadata = {}) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid, message, metadata);
}

bool IsBlank(std::string_view line) {
  return std::all_of(line.begin(), line.end(),
                     [](unsigned char c) { return absl::ascii_isspace(c); });
}

// A line of NUL bytes and nothing else but white space.
bool IsNulLine(std::string_view line) {
  bool nul = false;
  for (const char c : line) {
    if (c != '\0' && !absl::ascii_isspace(static_cast<unsigned char>(c))) return false;
    nul |= c == '\0';
  }
  return nul;
}

class TokenRowReader {
 public:
  TokenRowReader(const DataSource& source, BadRows& bad_rows, DocumentSink& sink)
      : source_(source), bad_rows_(bad_rows), sink_(sink) {}

  int64_t documents() const { return documents_; }

  absl::Status ReadFile(InputFile& file, int64_t file_index) {
    LineReader lines(file, kMaxLineBytes);
    bool first_row = true;
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string_view> line, lines.Next());
      if (!line) return absl::OkStatus();
      const SourceLocation here{file_index, lines.line_number()};
      if (IsNulLine(*line)) {
        PENSTOCK_RETURN_IF_ERROR(bad_rows_.Skip(here, 1, "a line of NUL bytes"));
        continue;
      }
      if (IsBlank(*line)) continue;
      if (first_row && BeginsJsonArrayOfRows(*line)) return RefuseArray(here);
      first_row = false;
      PENSTOCK_RETURN_IF_ERROR(ReadRow(*line, here));
    }
  }

 private:
  absl::Status ReadRow(std::string_view line, const SourceLocation& here) {
    if (const std::optional<RowError> error = ParseTokenRow(line, row_)) {
      return bad_rows_.Add(here, error->column, error->message);
    }
    PENSTOCK_RETURN_IF_ERROR(sink_.Append(row_.ids, row_.trained));
    ++documents_;
    return sink_.EndDocument(here);
  }

  absl::Status RefuseArray(const SourceLocation& here) {
    return Refuse(absl::StrCat(ToText(here, source_.paths),
                               ": the file is one JSON array of rows, lines of JSON with one row "
                               "each are wanted; convert it with jq -c '.[]'"),
                  {{"path", source_.paths[here.file]}, {"detected_format", "JSON array"}});
  }

  const DataSource& source_;
  BadRows& bad_rows_;
  DocumentSink& sink_;
  TokenRow row_;
  int64_t documents_ = 0;
};

}  // namespace

std::string ToText(const SourceLocation& location, std::span<const std::string> paths) {
  return absl::StrCat(paths[location.file], ":", location.line);
}

absl::Status Validate(const DataSource& source) {
  if (source.paths.empty()) return Refuse("data.paths is empty; name at least one file");
  const int64_t files = static_cast<int64_t>(source.paths.size());
  if (files > kMaxFiles) {
    return Refuse(absl::StrCat("data.paths names ", files, " files, at most ", kMaxFiles,
                               " are allowed; join small files"));
  }
  for (const std::string& path : source.paths) {
    if (path.empty() || path.find('\0') != std::string::npos) {
      return Refuse("data.paths has an empty name or one with a NUL byte; name a file");
    }
  }
  if (source.max_bad_rows < 0) {
    return Refuse(
        absl::StrCat("data.max_bad_rows is ", source.max_bad_rows, ", 0 or more is wanted"));
  }
  if (source.rows.max_rows && *source.rows.max_rows < 1) {
    return Refuse(
        absl::StrCat("max_rows is ", *source.rows.max_rows, ", 1 or more is wanted, or none"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ReadDocuments(const DataSource& source,
                                                       const ReadArgs& args, DocumentSink& sink) {
  PENSTOCK_RETURN_IF_ERROR(Validate(source));
  std::vector<std::string> hashes;
  ThreadPool pool(args.threads);
  BadRows bad_rows(source, sink);
  TokenRowReader token_rows(source, bad_rows, sink);
  TextReader text({.source = &source, .encoder = args.encoder, .pool = &pool, .sink = &sink});
  RowDocuments rows({.source = &source,
                     .encoder = args.encoder,
                     .pool = &pool,
                     .bad_rows = &bad_rows,
                     .sink = &sink,
                     .progress = args.progress});
  for (int64_t i = 0; i < static_cast<int64_t>(source.paths.size()); ++i) {
    const auto documents = [&] { return token_rows.documents() + text.documents() + rows.read(); };
    const int64_t documents_before = documents();
    PENSTOCK_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(source.paths[i], args.progress));
    switch (source.format) {
      case DataFormat::kText:
        PENSTOCK_RETURN_IF_ERROR(text.ReadFile(file, i));
        break;
      case DataFormat::kTokenIdsJsonl:
        PENSTOCK_RETURN_IF_ERROR(token_rows.ReadFile(file, i));
        break;
      case DataFormat::kRows:
        PENSTOCK_RETURN_IF_ERROR(rows.ReadFile(file, i));
        break;
    }
    if (documents() == documents_before && !rows.full()) {
      PENSTOCK_RETURN_IF_ERROR(
          sink.Note({NoteKind::kBadRow, {i, 1}, 1, "the file has no documents"}));
    }
    hashes.push_back(file.content_hash());
  }
  if (source.format == DataFormat::kRows) PENSTOCK_RETURN_IF_ERROR(rows.Finish());
  return hashes;
}

absl::StatusOr<std::vector<std::string>> HashFiles(const std::vector<std::string>& paths,
                                                   const ReadProgress& progress) {
  std::vector<std::string> hashes;
  std::string buffer(kReadBytes, '\0');
  for (const std::string& path : paths) {
    PENSTOCK_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path, progress));
    for (int64_t got = -1; got != 0;) {
      PENSTOCK_ASSIGN_OR_RETURN(got, file.Read(buffer));
    }
    hashes.push_back(file.content_hash());
  }
  return hashes;
}

}  // namespace penstock
