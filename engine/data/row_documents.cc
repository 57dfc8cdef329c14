#include "engine/data/row_documents.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/data/row_splitter.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

absl::Status Refuse(const std::string& path, const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid, message, {{"path", path}});
}

NoteKind ToNoteKind(ExampleFate fate) {
  switch (fate) {
    case ExampleFate::kTruncated:
      return NoteKind::kTruncated;
    case ExampleFate::kTooLong:
      return NoteKind::kTooLong;
    default:
      return NoteKind::kNothingToLearn;
  }
}

std::vector<const Column*> AllColumns(const Columns& columns) {
  return {&columns.prompt,   &columns.query, &columns.response, &columns.history,
          &columns.messages, &columns.text,  &columns.system,   &columns.tools};
}

bool Has(const ordered_json& row, const std::string& column) {
  const auto found = row.find(column);
  return found != row.end() && !found->is_null();
}

}  // namespace

RowDocuments::RowDocuments(const Args& args) : args_(args) {
  const RowSource& rows = args_.source->rows;
  if (rows.max_rows) rows_left_ = *rows.max_rows;
  if (rows.format) {
    format_origin_ = "as the job says";
    UseFormat(*rows.format);
  }
}

void RowDocuments::UseFormat(const FormatSpec& format) {
  format_ = format;
  for (const Column* column : AllColumns(format.columns)) {
    if (column->need == Column::Need::kNamed) named_.push_back(column->name);
  }
  PENSTOCK_CHECK(named_.size() <= 64, absl::StrCat(named_.size()));
}

absl::Status RowDocuments::ReadFile(InputFile& file, int64_t file_index) {
  PENSTOCK_ASSIGN_OR_RETURN(const FileKind kind, DetectFileKind(file));
  const std::unique_ptr<RowSplitter> splitter = RowSplitter::Create(file, kind);
  RowParser parser;
  std::string header;
  int64_t header_line = 1;
  if (HasHeader(kind)) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<RawRow> first, splitter->Next());
    if (!first) return absl::OkStatus();
    header = std::string(first->text);
    header_line = first->line;
  }
  if (const auto error = RowParser::Create(kind, header, parser)) {
    return Refuse(file.path(), absl::StrCat(file.path(), ":", header_line + error->line, ":",
                                            error->column, ": ", error->message));
  }
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<RawRow> raw, splitter->Next());
    if (!raw || full()) {
      PENSTOCK_RETURN_IF_ERROR(EncodeGroup(parser));
      if (!raw) return absl::OkStatus();
      continue;  // to the file's end, so that its hash is that of all of it
    }
    if (rows_left_ > 0) --rows_left_;
    group_bytes_ += static_cast<int64_t>(raw->text.size());
    Row& row = group_.emplace_back();
    row.text = std::string(raw->text);
    row.location = {file_index, raw->line};
    row.column = raw->column;
    if (group_bytes_ >= kRowGroupBytes || static_cast<int64_t>(group_.size()) == kRowGroupRows) {
      PENSTOCK_RETURN_IF_ERROR(EncodeGroup(parser));
    }
  }
}

absl::Status RowDocuments::EncodeGroup(const RowParser& parser) {
  if (read_ == 0) PENSTOCK_RETURN_IF_ERROR(LookAtFirstRow(parser));
  const size_t most = static_cast<size_t>(kRowsPerLook * args_.pool->size());
  for (std::span<Row> left(group_); !left.empty();) {
    EncodeRows(parser, left.first(std::min(most, left.size())));
    for (; !left.empty() && left.front().done; left = left.subspan(1)) {
      PENSTOCK_RETURN_IF_ERROR(GiveOut(left.front()));
      left.front() = {};
    }
    if (args_.progress) PENSTOCK_RETURN_IF_ERROR(args_.progress(0));
  }
  group_.clear();
  group_bytes_ = 0;
  return absl::OkStatus();
}

// The first of them at least; which others is left to chance if they have many tokens.
void RowDocuments::EncodeRows(const RowParser& parser, std::span<Row> rows) const {
  std::atomic<int64_t> tokens = 0;
  args_.pool->ParallelFor(static_cast<int64_t>(rows.size()), [&](int64_t i, int) {
    if (rows[i].done || (i > 0 && tokens > kRowGroupTokens)) return;
    EncodeRow(parser, rows[i]);
    rows[i].done = true;
    tokens += static_cast<int64_t>(rows[i].encoded.ids.size());
  });
}

// That can be read. If none can, they are all bad rows, whatever the format.
absl::Status RowDocuments::LookAtFirstRow(const RowParser& parser) {
  ordered_json json;
  const std::vector<std::string>& paths = args_.source->paths;
  for (const Row& row : group_) {
    if (parser.Parse(row.text, json)) continue;
    if (!format_) {
      absl::StatusOr<FormatSpec> found = DetectFormat(json);
      if (!found.ok()) {
        return Refuse(paths[row.location.file],
                      absl::StrCat(ToText(row.location, paths), ": ", found.status().message()));
      }
      format_origin_ = absl::StrCat("found by the columns of ", ToText(row.location, paths));
      UseFormat(*found);
    }
    unused_columns_ = absl::StrJoin(UnusedColumns(json, *format_), ", ");
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

void RowDocuments::EncodeRow(const RowParser& parser, Row& row) const {
  ordered_json json;
  if ((row.error = parser.Parse(row.text, json))) return;
  // There is a format: LookAtFirstRow() looked at this row too.
  for (size_t i = 0; i < named_.size(); ++i) {
    row.named_columns |= uint64_t{Has(json, named_[i])} << i;
  }
  Example example;
  if ((row.error = ToExample(json, *format_, example))) return;
  std::variant<EncodeResult, RowError> result = args_.encoder->Encode(example, row.encoded);
  if (auto* error = std::get_if<RowError>(&result)) {
    row.error = std::move(*error);
  } else {
    row.result = std::get<EncodeResult>(std::move(result));
  }
  const ExampleFate fate = row.result.fate;
  if (row.error || (fate != ExampleFate::kUsed && fate != ExampleFate::kTruncated)) {
    row.encoded = {};  // nobody will look at it
    return;
  }
  row.encoded.text = {};
  row.encoded.spans = {};
}

absl::Status RowDocuments::GiveOut(const Row& row) {
  named_found_ |= row.named_columns;
  if (row.error) {
    const int64_t column =
        row.error->line == 0 ? row.column + row.error->column - 1 : row.error->column;
    return args_.bad_rows->Add({row.location.file, row.location.line + row.error->line}, column,
                               row.error->message);
  }
  ++read_;
  if (row.result.fate != ExampleFate::kUsed) {
    PENSTOCK_RETURN_IF_ERROR(args_.sink->Note(
        {ToNoteKind(row.result.fate), row.location, row.column, row.result.detail}));
    if (row.result.fate != ExampleFate::kTruncated) return absl::OkStatus();
  }
  straddling_ += row.encoded.straddling;
  PENSTOCK_RETURN_IF_ERROR(args_.sink->Append(row.encoded.ids, row.encoded.trained));
  return args_.sink->EndDocument(row.location);
}

absl::Status RowDocuments::Finish() {
  if (!format_) return absl::OkStatus();
  for (size_t i = 0; i < named_.size(); ++i) {
    if ((named_found_ >> i & 1) != 0 || read_ == 0) continue;
    return Refuse(args_.source->paths[0],
                  absl::StrCat("the column \"", named_[i], "\" is named, but no row of ",
                               args_.source->paths[0], " and ", args_.source->paths.size() - 1,
                               " more file(s) has it; correct the name under columns, or leave "
                               "it out"));
  }
  std::vector<std::string> facts = {
      absl::StrCat("format ", std::string(ToText(format_->format)), ", ", format_origin_)};
  if (!unused_columns_.empty()) {
    facts.push_back(absl::StrCat("columns of the first row that nothing uses: ", unused_columns_));
  }
  if (straddling_ > 0) {
    facts.push_back(absl::StrCat(
        straddling_, " tokens begin in a prompt and end in an answer; they count as prompt"));
  }
  for (std::string& text : facts) {
    PENSTOCK_RETURN_IF_ERROR(args_.sink->Note({NoteKind::kFact, {}, 1, std::move(text)}));
  }
  return absl::OkStatus();
}

}  // namespace penstock
