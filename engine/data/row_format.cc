#include "engine/data/row_format.h"

#include <algorithm>
#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/data/hash.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxColumnsShown = 12;

absl::Status Refuse(const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid, message);
}

Column Required(std::string_view name) { return {std::string(name), Column::Need::kRequired}; }
Column Optional(std::string_view name) { return {std::string(name), Column::Need::kOptional}; }

std::array<const Column*, 8> AllOf(const Columns& columns) {
  return {&columns.prompt,   &columns.query, &columns.response, &columns.history,
          &columns.messages, &columns.text,  &columns.system,   &columns.tools};
}

std::string ListColumns(const ordered_json& row) {
  std::vector<std::string> names;
  for (const auto& [name, value] : row.items()) {
    if (names.size() == kMaxColumnsShown) {
      names.push_back(absl::StrCat("and ", row.size() - kMaxColumnsShown, " more"));
      break;
    }
    names.push_back(absl::StrCat("\"", absl::Utf8SafeCEscape(name.substr(0, 60)), "\""));
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

bool HasString(const ordered_json& row, const char* name) {
  const auto found = row.find(name);
  return found != row.end() && found->is_string();
}

// The format of a column of messages, by the keys of the first message.
std::optional<FormatSpec> DetectMessages(const ordered_json& row, const char* column) {
  const auto found = row.find(column);
  if (found == row.end() || !found->is_array() || found->empty()) return std::nullopt;
  const ordered_json& first = found->front();
  if (!first.is_object()) return std::nullopt;
  FormatSpec spec;
  if (first.contains("role")) {
    spec = DefaultFormat(RowFormat::kMessages);
  } else if (first.contains("from")) {
    spec = DefaultFormat(RowFormat::kShareGpt);
  } else {
    return std::nullopt;
  }
  spec.columns.messages = Required(column);
  return spec;
}

// What rows hold that look like a dataset, but not for these jobs.
std::string HintFor(const ordered_json& row) {
  if (row.contains("chosen") && row.contains("rejected")) {
    return "; \"chosen\" and \"rejected\" are preference data, which pretrain and sft jobs do not "
           "use";
  }
  if (row.contains("ids") || row.contains("input_ids")) {
    return "; for rows of token ids set the format to token_ids_jsonl, with the key \"ids\"";
  }
  return "";
}

}  // namespace

std::string_view ToText(RowFormat format) {
  switch (format) {
    case RowFormat::kAlpaca:
      return "alpaca";
    case RowFormat::kShareGpt:
      return "sharegpt";
    case RowFormat::kMessages:
      return "messages";
    case RowFormat::kPromptCompletion:
      return "prompt_completion";
    case RowFormat::kText:
      return "text_rows";
  }
  return "";
}

FormatSpec DefaultFormat(RowFormat format) {
  FormatSpec spec{.format = format};
  Columns& columns = spec.columns;
  switch (format) {
    case RowFormat::kAlpaca:
      columns.prompt = Required("instruction");
      columns.query = Optional("input");
      columns.response = Required("output");
      columns.history = Optional("history");
      columns.system = Optional("system");
      break;
    case RowFormat::kShareGpt:
      spec.turns = Turns::kAlternate;
      columns.messages = Required("conversations");
      columns.system = Optional("system");
      columns.tools = Optional("tools");
      spec.tags = {.role = "from",
                   .content = "value",
                   .user = "human",
                   .assistant = "gpt",
                   .observation = "observation",
                   .function = "function_call",
                   .system = "system"};
      break;
    case RowFormat::kMessages:
      columns.messages = Required("messages");
      columns.system = Optional("system");
      columns.tools = Optional("tools");
      break;
    case RowFormat::kPromptCompletion:
      columns.prompt = Required("prompt");
      columns.response = Required("completion");
      columns.tools = Optional("tools");
      break;
    case RowFormat::kText:
      columns.text = Required("text");
      break;
  }
  if (format == RowFormat::kMessages || format == RowFormat::kPromptCompletion) {
    spec.tags = {.role = "role",
                 .content = "content",
                 .user = "user",
                 .assistant = "assistant",
                 .observation = "tool",
                 .function = "",
                 .system = "system"};
  }
  return spec;
}

absl::StatusOr<FormatSpec> DetectFormat(const ordered_json& row) {
  std::vector<FormatSpec> candidates;
  for (const char* column : {"messages", "conversations", "conversation"}) {
    if (auto spec = DetectMessages(row, column)) candidates.push_back(*std::move(spec));
  }
  if (row.contains("instruction") && row.contains("output")) {
    candidates.push_back(DefaultFormat(RowFormat::kAlpaca));
  }
  if (row.contains("prompt") && row.contains("completion")) {
    candidates.push_back(DefaultFormat(RowFormat::kPromptCompletion));
  }
  if (HasString(row, "text")) candidates.push_back(DefaultFormat(RowFormat::kText));
  if (candidates.size() == 1) return candidates.front();
  if (candidates.empty()) {
    return Refuse(absl::StrCat(
        "no known format has the columns ", ListColumns(row),
        "; name the format and its columns, or use those of one: \"messages\"; \"conversations\"; "
        "\"instruction\" and \"output\"; \"prompt\" and \"completion\"; \"text\"",
        HintFor(row)));
  }
  std::vector<std::string> names;
  for (const FormatSpec& spec : candidates) names.emplace_back(ToText(spec.format));
  return Refuse(absl::StrCat("the columns ", ListColumns(row), " could be of the formats ",
                             absl::StrJoin(names, " and "), "; name the format that is meant"));
}

std::vector<std::string> UnusedColumns(const ordered_json& row, const FormatSpec& spec) {
  std::vector<std::string> unused;
  const auto columns = AllOf(spec.columns);
  for (const auto& [name, value] : row.items()) {
    const bool used = std::any_of(columns.begin(), columns.end(), [&](const Column* column) {
      return column->used() && column->name == name;
    });
    if (!used) unused.push_back(name);
  }
  return unused;
}

std::string Fingerprint(const FormatSpec& spec) {
  ContentHash hash;
  hash.UpdateField(ToText(spec.format));
  hash.UpdateField(absl::StrCat(static_cast<int>(spec.turns)));
  for (const Column* column : AllOf(spec.columns)) {
    hash.UpdateField(absl::StrCat(static_cast<int>(column->need)));
    hash.UpdateField(column->name);
  }
  const Tags& tags = spec.tags;
  for (const std::string* tag : {&tags.role, &tags.content, &tags.user, &tags.assistant,
                                 &tags.observation, &tags.function, &tags.system}) {
    hash.UpdateField(*tag);
  }
  return hash.HexDigest();
}

}  // namespace penstock
