#include "engine/data/source.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/data/line_reader.h"
#include "engine/data/token_row.h"

namespace penstock {
namespace {

constexpr int64_t kMaxFiles = int64_t{1} << 20;

absl::Status Refuse(const std::string& message, const ErrorMetadata& metadata = {}) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid, message, metadata);
}

// Where to cut `text` so that a tokenizer notices it least: after a line end, else after a
// space, else between two code points. Never 0.
size_t PieceEnd(std::string_view text) {
  if (const size_t at = text.rfind('\n'); at != std::string_view::npos) return at + 1;
  if (const size_t at = text.rfind(' '); at != std::string_view::npos) return at + 1;
  const auto is_continuation = [&](size_t at) { return (text[at] & 0xC0) == 0x80; };
  size_t lead = text.size() - 1;
  for (int back = 0; back < 3 && lead > 0 && is_continuation(lead); ++back) --lead;
  return lead > 0 && (text[lead] & 0xC0) == 0xC0 ? lead : text.size();
}

// Turns the text of documents into calls of a sink, in pieces of bounded size.
class TextEncoder {
 public:
  TextEncoder(const Tokenizer& tokenizer, DocumentSink& sink)
      : tokenizer_(tokenizer), sink_(sink) {}

  absl::Status Add(std::string_view text) {
    while (!text.empty()) {
      const size_t room = static_cast<size_t>(kEncodePieceBytes) - pending_.size();
      pending_.append(text.substr(0, room));
      text.remove_prefix(std::min(room, text.size()));
      // Not when merely full: only a document that goes on is cut.
      if (!text.empty()) PENSTOCK_RETURN_IF_ERROR(Encode(PieceEnd(pending_)));
    }
    return absl::OkStatus();
  }

  // Nothing was added since the last Finish().
  bool empty() const { return pending_.empty() && tokens_ == 0; }

  int64_t documents() const { return documents_; }

  absl::Status Finish(const SourceLocation& start) {
    PENSTOCK_RETURN_IF_ERROR(Encode(pending_.size()));
    if (const std::optional<int32_t> end = tokenizer_.end_of_document()) {
      PENSTOCK_RETURN_IF_ERROR(sink_.Append(std::span(&*end, 1), {}));
      ++tokens_;
    }
    // A tokenizer may give no token for, say, a lone control character.
    if (tokens_ > 0) {
      PENSTOCK_RETURN_IF_ERROR(sink_.EndDocument(start));
      ++documents_;
    }
    tokens_ = 0;
    return absl::OkStatus();
  }

 private:
  absl::Status Encode(size_t bytes) {
    ids_.clear();
    PENSTOCK_RETURN_IF_ERROR(tokenizer_.Encode(std::string_view(pending_).substr(0, bytes), ids_));
    pending_.erase(0, bytes);
    tokens_ += static_cast<int64_t>(ids_.size());
    return ids_.empty() ? absl::OkStatus() : sink_.Append(ids_, {});
  }

  const Tokenizer& tokenizer_;
  DocumentSink& sink_;
  std::string pending_;
  std::vector<int32_t> ids_;
  int64_t tokens_ = 0;  // of the current document
  int64_t documents_ = 0;
};

absl::Status ReadWholeFile(InputFile& file, int64_t file_index, TextEncoder& encoder) {
  std::string buffer(kReadBytes, '\0');
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t got, file.Read(buffer));
    if (got == 0) break;
    PENSTOCK_RETURN_IF_ERROR(encoder.Add(std::string_view(buffer).substr(0, got)));
  }
  return encoder.empty() ? absl::OkStatus() : encoder.Finish({file_index, 1});
}

bool IsBlank(std::string_view line) {
  return std::all_of(line.begin(), line.end(),
                     [](unsigned char c) { return absl::ascii_isspace(c); });
}

// The lines of a document are joined by "\n"; there is none after the last.
absl::Status ReadParagraphs(InputFile& file, int64_t file_index, TextEncoder& encoder) {
  LineReader lines(file, kMaxLineBytes);
  SourceLocation start{file_index, 0};
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string_view> line, lines.Next());
    if (line && !IsBlank(*line)) {
      if (encoder.empty()) {
        start.line = lines.line_number();
      } else {
        PENSTOCK_RETURN_IF_ERROR(encoder.Add("\n"));
      }
      PENSTOCK_RETURN_IF_ERROR(encoder.Add(*line));
      continue;
    }
    if (!encoder.empty()) PENSTOCK_RETURN_IF_ERROR(encoder.Finish(start));
    if (!line) return absl::OkStatus();
  }
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

class RowReader {
 public:
  RowReader(const DataSource& source, DocumentSink& sink) : source_(source), sink_(sink) {}

  int64_t documents() const { return documents_; }

  absl::Status ReadFile(InputFile& file, int64_t file_index) {
    LineReader lines(file, kMaxLineBytes);
    bool first_row = true;
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string_view> line, lines.Next());
      if (!line) return absl::OkStatus();
      const SourceLocation here{file_index, lines.line_number()};
      if (IsNulLine(*line)) {
        PENSTOCK_RETURN_IF_ERROR(Skip({here, 1, "a line of NUL bytes"}));
        continue;
      }
      if (IsBlank(*line)) continue;
      if (first_row && BeginsJsonArrayOfRows(*line)) return RefuseArray(file.path(), here);
      first_row = false;
      PENSTOCK_RETURN_IF_ERROR(ReadRow(*line, here));
    }
  }

 private:
  absl::Status ReadRow(std::string_view line, const SourceLocation& here) {
    if (const std::optional<RowError> error = ParseTokenRow(line, row_)) {
      if (source_.on_bad_row == BadRowPolicy::kSkip) {
        return Skip({here, error->column, error->message});
      }
      return Refuse(absl::StrCat(ToText(here, source_.paths), ":", error->column, ": ",
                                 error->message, "; correct the row, or set on_bad_row to SKIP"),
                    Where(here, error->column));
    }
    PENSTOCK_RETURN_IF_ERROR(sink_.Append(row_.ids, row_.trained));
    ++documents_;
    return sink_.EndDocument(here);
  }

  absl::Status Skip(const SkippedRow& row) {
    if (++skipped_ > source_.max_bad_rows) {
      return Refuse(
          absl::StrCat(ToText(row.location, source_.paths), ":", row.column, ": ", row.message,
                       "; this is bad row ", skipped_, ", max_bad_rows allows ",
                       source_.max_bad_rows, "; correct the file, or raise max_bad_rows"),
          Where(row.location, row.column));
    }
    return sink_.Skip(row);
  }

  absl::Status RefuseArray(const std::string& path, const SourceLocation& here) {
    return Refuse(absl::StrCat(path, ":", here.line,
                               ": the file is one JSON array of rows, lines of JSON with one row "
                               "each are wanted; convert it with jq -c '.[]'"),
                  {{"path", path}, {"detected_format", "JSON array"}});
  }

  ErrorMetadata Where(const SourceLocation& here, int64_t column) const {
    return {{"path", source_.paths[here.file]},
            {"line", absl::StrCat(here.line)},
            {"column", absl::StrCat(column)}};
  }

  const DataSource& source_;
  DocumentSink& sink_;
  TokenRow row_;
  int64_t skipped_ = 0;  // over all files
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
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ReadDocuments(const DataSource& source,
                                                       const Tokenizer& tokenizer,
                                                       const ReadProgress& progress,
                                                       DocumentSink& sink) {
  PENSTOCK_RETURN_IF_ERROR(Validate(source));
  std::vector<std::string> hashes;
  TextEncoder encoder(tokenizer, sink);
  RowReader rows(source, sink);
  for (int64_t i = 0; i < static_cast<int64_t>(source.paths.size()); ++i) {
    const int64_t documents_before = encoder.documents() + rows.documents();
    PENSTOCK_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(source.paths[i], progress));
    if (source.format == DataFormat::kTokenIdsJsonl) {
      PENSTOCK_RETURN_IF_ERROR(rows.ReadFile(file, i));
    } else if (source.text_documents == TextDocuments::kBlankLine) {
      PENSTOCK_RETURN_IF_ERROR(ReadParagraphs(file, i, encoder));
    } else {
      PENSTOCK_RETURN_IF_ERROR(ReadWholeFile(file, i, encoder));
    }
    if (encoder.documents() + rows.documents() == documents_before) {
      PENSTOCK_RETURN_IF_ERROR(sink.Skip({{i, 1}, 1, "the file has no documents"}));
    }
    hashes.push_back(file.content_hash());
  }
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
