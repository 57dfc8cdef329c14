#include "server/spec/dataset_format.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/spec/spec_fields.h"

namespace penstock::server {
namespace {

// A column: its name in the spec and its place on both sides.
struct ColumnField {
  const char* name;
  Column Columns::*column;
  bool (v1::ColumnNames::*has)() const;
  const std::string& (v1::ColumnNames::*get)() const;
  std::string* (v1::ColumnNames::*mutable_value)();
};
#define PENSTOCK_COLUMN(NAME)                                                    \
  ColumnField {                                                                  \
#NAME, &Columns::NAME, &v1::ColumnNames::has_##NAME, &v1::ColumnNames::NAME, \
        &v1::ColumnNames::mutable_##NAME                                         \
  }
constexpr std::array<ColumnField, 8> kColumns = {
    PENSTOCK_COLUMN(prompt),  PENSTOCK_COLUMN(query),    PENSTOCK_COLUMN(response),
    PENSTOCK_COLUMN(history), PENSTOCK_COLUMN(messages), PENSTOCK_COLUMN(text),
    PENSTOCK_COLUMN(system),  PENSTOCK_COLUMN(tools)};
#undef PENSTOCK_COLUMN

struct TagField {
  const char* name;
  std::string Tags::*tag;
  bool (v1::TagNames::*has)() const;
  const std::string& (v1::TagNames::*get)() const;
  std::string* (v1::TagNames::*mutable_value)();
};
#define PENSTOCK_TAG(NAME)                                              \
  TagField {                                                            \
#NAME, &Tags::NAME, &v1::TagNames::has_##NAME, &v1::TagNames::NAME, \
        &v1::TagNames::mutable_##NAME                                   \
  }
constexpr std::array<TagField, 7> kTags = {
    PENSTOCK_TAG(role),        PENSTOCK_TAG(content),  PENSTOCK_TAG(user),  PENSTOCK_TAG(assistant),
    PENSTOCK_TAG(observation), PENSTOCK_TAG(function), PENSTOCK_TAG(system)};
#undef PENSTOCK_TAG

bool HasMessages(RowFormat format) {
  return format == RowFormat::kShareGpt || format == RowFormat::kMessages;
}

// Whether the format has a use for a column, whatever it is called.
bool Uses(RowFormat format, Column Columns::*column) {
  const bool chat = format == RowFormat::kAlpaca || HasMessages(format);
  if (column == &Columns::system) return chat;
  if (column == &Columns::tools) return chat || format == RowFormat::kPromptCompletion;
  return (DefaultFormat(format).columns.*column).used();
}

absl::Status ApplyColumns(const std::string& field, const v1::ColumnNames& names,
                          FormatSpec& format) {
  for (const ColumnField& known : kColumns) {
    if (!(names.*known.has)()) continue;
    const std::string& name = (names.*known.get)();
    Column& column = format.columns.*known.column;
    if (name.empty()) {
      column = {};
      continue;
    }
    if (!Uses(format.format, known.column)) {
      return UnusedFieldError(absl::StrCat(field, ".", known.name),
                              absl::StrCat("in the format ", std::string(ToText(format.format))));
    }
    const bool required = column.need == Column::Need::kRequired;
    column = {name, required ? Column::Need::kRequired : Column::Need::kNamed};
  }
  return absl::OkStatus();
}

absl::Status CheckColumns(const std::string& field, const FormatSpec& format) {
  const Columns& columns = format.columns;
  const char* missing = nullptr;
  switch (format.format) {
    case RowFormat::kAlpaca:
      if (!columns.prompt.used() && !columns.query.used()) missing = "prompt";
      if (!columns.response.used()) missing = "response";
      break;
    case RowFormat::kPromptCompletion:
      if (!columns.prompt.used()) missing = "prompt";
      if (!columns.response.used()) missing = "response";
      break;
    case RowFormat::kShareGpt:
    case RowFormat::kMessages:
      if (!columns.messages.used()) missing = "messages";
      break;
    case RowFormat::kText:
      if (!columns.text.used()) missing = "text";
      break;
  }
  if (missing == nullptr) return absl::OkStatus();
  return FieldError(absl::StrCat(field, ".", missing), "\"\"",
                    absl::StrCat("the name of a column: the format ",
                                 std::string(ToText(format.format)), " needs it"));
}

absl::Status ApplyTags(const std::string& field, const v1::TagNames& names, FormatSpec& format) {
  for (const TagField& known : kTags) {
    if (!(names.*known.has)()) continue;
    if (!HasMessages(format.format)) {
      return UnusedFieldError(absl::StrCat(field, ".", known.name), "on a format without messages");
    }
    format.tags.*known.tag = (names.*known.get)();
  }
  if (!HasMessages(format.format)) return absl::OkStatus();
  for (const char* needed : {"role", "content", "user", "assistant"}) {
    for (const TagField& known : kTags) {
      if (std::string(known.name) != needed || !(format.tags.*known.tag).empty()) continue;
      return FieldError(absl::StrCat(field, ".", needed), "\"\"", "what it is called in the rows");
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<RowFormat> ToRowFormat(v1::DataFormat format) {
  switch (format) {
    case v1::DATA_FORMAT_ALPACA:
      return RowFormat::kAlpaca;
    case v1::DATA_FORMAT_SHAREGPT:
      return RowFormat::kShareGpt;
    case v1::DATA_FORMAT_MESSAGES:
      return RowFormat::kMessages;
    case v1::DATA_FORMAT_PROMPT_COMPLETION:
      return RowFormat::kPromptCompletion;
    case v1::DATA_FORMAT_TEXT_ROWS:
      return RowFormat::kText;
    default:
      return std::nullopt;
  }
}

absl::StatusOr<FormatSpec> MakeFormat(const std::string& field, const v1::DatasetSpec& dataset) {
  FormatSpec format = DefaultFormat(*ToRowFormat(dataset.format()));
  PENSTOCK_RETURN_IF_ERROR(
      ApplyColumns(absl::StrCat(field, ".columns"), dataset.columns(), format));
  PENSTOCK_RETURN_IF_ERROR(CheckColumns(absl::StrCat(field, ".columns"), format));
  PENSTOCK_RETURN_IF_ERROR(ApplyTags(absl::StrCat(field, ".tags"), dataset.tags(), format));
  if (dataset.has_alternate_turns()) {
    if (!HasMessages(format.format)) {
      return UnusedFieldError(absl::StrCat(field, ".alternate_turns"),
                              "on a format without messages");
    }
    format.turns = dataset.alternate_turns() ? Turns::kAlternate : Turns::kFree;
  }
  return format;
}

void SetFormat(const DatasetInfo& info, v1::DatasetSpec& dataset) {
  const FormatSpec usual = DefaultFormat(info.format.format);
  switch (info.format.format) {
    case RowFormat::kShareGpt:
      dataset.set_format(v1::DATA_FORMAT_SHAREGPT);
      break;
    case RowFormat::kMessages:
      dataset.set_format(v1::DATA_FORMAT_MESSAGES);
      break;
    default:
      dataset.set_format(v1::DATA_FORMAT_ALPACA);
      break;
  }
  for (const ColumnField& known : kColumns) {
    const Column& column = info.format.columns.*known.column;
    if (column == usual.columns.*known.column) continue;
    *(dataset.mutable_columns()->*known.mutable_value)() = column.used() ? column.name : "";
  }
  for (const TagField& known : kTags) {
    const std::string& tag = info.format.tags.*known.tag;
    if (tag != usual.tags.*known.tag) *(dataset.mutable_tags()->*known.mutable_value)() = tag;
  }
  if (info.format.turns != usual.turns) {
    dataset.set_alternate_turns(info.format.turns == Turns::kAlternate);
  }
  if (info.max_samples) dataset.set_max_rows(*info.max_samples);
}

}  // namespace penstock::server
