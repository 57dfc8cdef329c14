#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/data/row_format.h"
#include "engine/model/strict_json.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;
using MaybeError = std::optional<RowError>;

constexpr JsonLimits kInnerLimits = {
    .max_bytes = int64_t{1} << 24, .max_depth = 64, .max_values = 100'000, .max_object_keys = 4096};

MaybeError Bad(std::string message) { return RowError{1, std::move(message)}; }

std::string Quoted(std::string_view text) {
  constexpr size_t kMaxShown = 60;
  const std::string_view shown = text.substr(0, kMaxShown);
  return absl::StrCat("\"", absl::Utf8SafeCEscape({shown.data(), shown.size()}),
                      text.size() > kMaxShown ? "...\"" : "\"");
}

std::string Kind(const ordered_json& value) {
  if (value.is_string()) return "a string";
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  if (value.is_boolean()) return "a boolean";
  return value.is_null() ? "null" : "a number";
}

// The column's value, or null where the row may do without it.
const ordered_json* Find(const ordered_json& row, const Column& column) {
  if (!column.used()) return nullptr;
  const auto found = row.find(column.name);
  return found == row.end() || found->is_null() ? nullptr : &*found;
}

MaybeError Missing(const Column& column) {
  return Bad(absl::StrCat("column ", Quoted(column.name),
                          " is missing or null; every row needs it. Is the column called "
                          "something else? Then map it under columns"));
}

// `text` stays empty where the column may be missing and is.
MaybeError GetText(const ordered_json& row, const Column& column, std::string& text) {
  const ordered_json* value = Find(row, column);
  if (value == nullptr) {
    return column.need == Column::Need::kRequired ? Missing(column) : std::nullopt;
  }
  if (!value->is_string()) {
    return Bad(
        absl::StrCat("column ", Quoted(column.name), " is ", Kind(*value), ", expected a string"));
  }
  text = value->get_ref<const std::string&>();
  return std::nullopt;
}

ChatMessage Message(const char* role, std::string content) {
  return {.fields = {{"role", role}, {"content", std::move(content)}}};
}

// A tool that is only the function's description, as LLaMA-Factory's files have it, gets the
// wrapping that chat templates expect.
ordered_json WrapTool(ordered_json tool) {
  const bool bare = tool.contains("name") && !tool.contains("type") && !tool.contains("function");
  if (!bare) return tool;
  return {{"type", "function"}, {"function", std::move(tool)}};
}

MaybeError GetTools(const ordered_json& row, const Column& column, ordered_json& tools) {
  const ordered_json* value = Find(row, column);
  if (value == nullptr) return std::nullopt;
  ordered_json parsed;
  if (value->is_string()) {
    const std::string& text = value->get_ref<const std::string&>();
    if (text.empty()) return std::nullopt;
    if (const auto problem = ParseOrderedJson(text, kInnerLimits, parsed)) {
      return Bad(absl::StrCat("column ", Quoted(column.name), " is not JSON: at byte ",
                              problem->offset + 1, ": ", problem->what));
    }
    value = &parsed;
  }
  if (!value->is_array()) {
    return Bad(absl::StrCat("column ", Quoted(column.name), " is ", Kind(*value),
                            ", expected an array of tools, or its JSON text"));
  }
  if (value->empty()) return std::nullopt;
  tools = ordered_json::array();
  for (const ordered_json& tool : *value) {
    if (!tool.is_object()) {
      return Bad(absl::StrCat(column.name, "[", tools.size(), "] is ", Kind(tool),
                              ", expected an object"));
    }
    tools.push_back(WrapTool(tool));
  }
  return std::nullopt;
}

// One list of messages, in the words of `tags`, as chat templates want it.
class MessageList {
 public:
  MessageList(const std::string& column, const Tags& tags, std::vector<ChatMessage>& messages)
      : column_(column), tags_(tags), messages_(messages) {}

  MaybeError Add(const ordered_json& list) {
    if (!list.is_array()) {
      return Bad(absl::StrCat("column ", Quoted(column_), " is ", Kind(list),
                              ", expected an array of messages",
                              list.is_string() ? "; CSV cannot hold one, use lines of JSON" : ""));
    }
    for (index_ = 0; index_ < list.size(); ++index_) {
      if (auto error = AddMessage(list[index_])) return error;
    }
    return std::nullopt;
  }

 private:
  MaybeError BadAt(std::string_view key, const std::string& message) const {
    return Bad(absl::StrCat(column_, "[", index_, "]", key.empty() ? "" : ".", std::string(key),
                            ": ", message));
  }

  MaybeError AddMessage(const ordered_json& source) {
    if (!source.is_object()) {
      return BadAt("", absl::StrCat("found ", Kind(source), ", expected an object"));
    }
    ChatMessage message{.fields = ordered_json::object()};
    bool is_call = false;
    if (auto error = SetRole(source, message, is_call)) return error;
    if (auto error = SetContent(source, message)) return error;
    if (auto error = SetTrain(source, message)) return error;
    for (const auto& [key, value] : source.items()) {
      if (key == tags_.role || key == tags_.content || key == "train" || key == "weight") continue;
      if (key == "role" || key == "content") {
        return BadAt(key, absl::StrCat("this key has no place beside the tags ", Quoted(tags_.role),
                                       " and ", Quoted(tags_.content)));
      }
      message.fields[key] = value;
    }
    if (is_call) {
      if (auto error = ContentToCalls(message)) return error;
    }
    if (auto error = CheckAnswer(message)) return error;
    messages_.push_back(std::move(message));
    return std::nullopt;
  }

  MaybeError SetRole(const ordered_json& source, ChatMessage& message, bool& is_call) {
    const auto found = source.find(tags_.role);
    if (found == source.end() || !found->is_string()) {
      return BadAt(tags_.role,
                   absl::StrCat("found ", found == source.end() ? "nothing" : Kind(*found),
                                ", expected the role, a string"));
    }
    const std::string& tag = found->get_ref<const std::string&>();
    is_call = !tags_.function.empty() && tag == tags_.function;
    const char* role = RoleOf(tag);
    if (role == nullptr) {
      return BadAt(tags_.role, absl::StrCat("unknown role ", Quoted(tag), ", expected one of ",
                                            RoleNames(), "; map it under tags"));
    }
    message.fields["role"] = role;
    return std::nullopt;
  }

  // Null for a tag that is no role.
  const char* RoleOf(const std::string& tag) const {
    if (tag.empty()) return nullptr;
    if (tag == tags_.user) return "user";
    if (tag == tags_.assistant || tag == tags_.function) return "assistant";
    if (tag == tags_.observation) return "tool";
    if (tag == tags_.system) return "system";
    return tag == "developer" && tags_.user == "user" ? "developer" : nullptr;
  }

  std::string RoleNames() const {
    std::vector<std::string> names;
    for (const std::string* name :
         {&tags_.system, &tags_.user, &tags_.assistant, &tags_.observation, &tags_.function}) {
      if (!name->empty()) names.push_back(*name);
    }
    return absl::StrJoin(names, ", ");
  }

  // Parts of text become one text.
  MaybeError SetContent(const ordered_json& source, ChatMessage& message) {
    const auto found = source.find(tags_.content);
    const bool calls = source.contains("tool_calls");
    if (found == source.end() || found->is_null()) {
      if (!calls) return BadAt(tags_.content, "missing or null, expected a string");
      message.fields["content"] = nullptr;
      return std::nullopt;
    }
    if (found->is_string()) {
      message.fields["content"] = *found;
      return std::nullopt;
    }
    if (!found->is_array()) {
      return BadAt(tags_.content, absl::StrCat("found ", Kind(*found), ", expected a string"));
    }
    std::string text;
    for (const ordered_json& part : *found) {
      const auto type = part.is_object() ? part.find("type") : part.end();
      const auto content = part.is_object() ? part.find("text") : part.end();
      if (!part.is_object() || type == part.end() || *type != "text" || content == part.end() ||
          !content->is_string()) {
        return BadAt(tags_.content,
                     "has a part that is not {\"type\": \"text\", \"text\": ...}; only text is "
                     "trained on, so take such rows out");
      }
      text += content->get_ref<const std::string&>();
    }
    message.fields["content"] = std::move(text);
    return std::nullopt;
  }

  // "train": true or false, or OpenAI's "weight": 0 or 1.
  MaybeError SetTrain(const ordered_json& source, ChatMessage& message) {
    for (const char* key : {"train", "weight"}) {
      const auto found = source.find(key);
      if (found == source.end() || found->is_null()) continue;
      const bool one_or_zero = found->is_number() && (*found == 0 || *found == 1);
      if (!found->is_boolean() && !one_or_zero) {
        return BadAt(key, absl::StrCat("found ", Kind(*found), ", expected true or false, 1 or 0"));
      }
      const bool train = found->is_boolean() ? found->get<bool>() : *found == 1;
      if (message.train && *message.train != train) {
        return BadAt(key, "says something else than \"train\"; remove one of them");
      }
      message.train = train;
    }
    if (message.train == true && message.role() != "assistant") {
      return BadAt("train", absl::StrCat("is true on a message of role ", message.role(),
                                         "; only what the assistant says is learned (or set "
                                         "train_on_prompt)"));
    }
    return std::nullopt;
  }

  // ShareGPT's function_call holds {"name": ..., "arguments": ...}, or an array of such.
  MaybeError ContentToCalls(ChatMessage& message) {
    const ordered_json& content = message.fields["content"];
    ordered_json calls;
    const std::string text = content.is_string() ? content.get<std::string>() : "";
    if (const auto problem = ParseOrderedJson(text, kInnerLimits, calls)) {
      return BadAt(tags_.content, absl::StrCat("a function call that is not JSON: at byte ",
                                               problem->offset + 1, ": ", problem->what));
    }
    if (!calls.is_array()) calls = ordered_json::array({std::move(calls)});
    ordered_json tool_calls = ordered_json::array();
    for (ordered_json& call : calls) {
      if (!call.is_object() || !call.contains("name") || !call.contains("arguments")) {
        return BadAt(tags_.content,
                     "a function call without \"name\" or \"arguments\", expected an object with "
                     "both");
      }
      tool_calls.push_back({{"type", "function"}, {"function", std::move(call)}});
    }
    message.fields["content"] = "";
    message.fields["tool_calls"] = std::move(tool_calls);
    return std::nullopt;
  }

  MaybeError CheckAnswer(const ChatMessage& message) const {
    const auto calls = message.fields.find("tool_calls");
    if (calls == message.fields.end() || calls->is_null()) return std::nullopt;
    if (message.role() != "assistant") {
      return BadAt("tool_calls", absl::StrCat("on a message of role ", message.role(),
                                              ", only the assistant calls tools"));
    }
    if (calls->is_array()) return std::nullopt;
    return BadAt("tool_calls", absl::StrCat("found ", Kind(*calls), ", expected an array"));
  }

  const std::string& column_;
  const Tags& tags_;
  std::vector<ChatMessage>& messages_;
  size_t index_ = 0;
};

MaybeError BadTurn(const std::string& column, size_t index, const std::string& message) {
  return Bad(absl::StrCat(column, "[", index, "]: ", message));
}

// What holds for every conversation. Which turns may follow each other beyond that is up to the
// chat template, which raises an error of its own.
MaybeError CheckConversation(const std::string& column, const std::vector<ChatMessage>& messages) {
  if (messages.empty()) return Bad(absl::StrCat(column, " is empty, expected messages"));
  bool answered = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role();
    answered |= role == "assistant";
    if ((role == "system" || role == "developer") && i > 0 && messages[i - 1].role() != "system") {
      return BadTurn(column, i,
                     absl::StrCat("a ", role, " message after other turns, expected at the start"));
    }
    const std::string before = i == 0 ? "nothing" : messages[i - 1].role();
    if (role == "tool" && before != "assistant" && before != "tool") {
      return BadTurn(
          column, i,
          absl::StrCat("a tool's answer after ", before, ", expected after the assistant's call"));
    }
  }
  if (answered) return std::nullopt;
  return Bad(absl::StrCat(column, " has no message of the assistant, so nothing to learn"));
}

// Turns::kAlternate.
MaybeError CheckTurnAbout(const std::string& column, RowFormat format,
                          const std::vector<ChatMessage>& messages) {
  int64_t turns = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role();
    if (i == 0 && (role == "system" || role == "developer")) continue;
    const bool same_turn = format != RowFormat::kShareGpt && role == "tool" && turns > 0 &&
                           messages[i - 1].role() == "tool";
    if (same_turn) continue;
    const bool asks = turns % 2 == 0;
    if (asks ? role != "user" && role != "tool" : role != "assistant") {
      return BadTurn(column, i,
                     absl::StrCat("a turn of role ", role, ", expected ",
                                  asks ? "the user's or a tool's" : "the assistant's",
                                  ": conversations of this format go turn and turn about"));
    }
    ++turns;
  }
  if (turns % 2 == 0) return std::nullopt;
  return Bad(absl::StrCat(column, " has ", turns,
                          " turns, expected an even number: the last one has no answer"));
}

// The system column, unless the conversation begins with a system message of its own.
MaybeError AddSystem(const ordered_json& row, const Column& column,
                     std::vector<ChatMessage>& messages) {
  std::string system;
  if (auto error = GetText(row, column, system)) return error;
  const bool has_own =
      !messages.empty() && (messages[0].role() == "system" || messages[0].role() == "developer");
  if (!system.empty() && !has_own) messages.insert(messages.begin(), Message("system", system));
  return std::nullopt;
}

MaybeError AddHistory(const ordered_json& row, const Column& column,
                      std::vector<ChatMessage>& messages) {
  const ordered_json* history = Find(row, column);
  if (history == nullptr) return std::nullopt;
  if (!history->is_array()) {
    return Bad(absl::StrCat("column ", Quoted(column.name), " is ", Kind(*history),
                            ", expected an array of [question, answer]"));
  }
  for (size_t i = 0; i < history->size(); ++i) {
    const ordered_json& turn = (*history)[i];
    if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string()) {
      return Bad(absl::StrCat(column.name, "[", i,
                              "] is not [question, answer], two strings in an array"));
    }
    messages.push_back(Message("user", turn[0].get<std::string>()));
    messages.push_back(Message("assistant", turn[1].get<std::string>()));
  }
  return std::nullopt;
}

MaybeError FromAlpaca(const ordered_json& row, const FormatSpec& spec, Example& example) {
  const Columns& columns = spec.columns;
  Chat chat;
  std::string prompt, query, response;
  if (auto error = GetText(row, columns.prompt, prompt)) return error;
  if (auto error = GetText(row, columns.query, query)) return error;
  if (auto error = GetText(row, columns.response, response)) return error;
  if (prompt.empty() && query.empty()) {
    return Bad(absl::StrCat("the instruction (column ", Quoted(columns.prompt.name),
                            ") is empty, and so is its input"));
  }
  if (auto error = AddHistory(row, columns.history, chat.messages)) return error;
  const char* between = prompt.empty() || query.empty() ? "" : "\n";
  chat.messages.push_back(Message("user", absl::StrCat(prompt, between, query)));
  chat.messages.push_back(Message("assistant", std::move(response)));
  if (auto error = AddSystem(row, columns.system, chat.messages)) return error;
  if (auto error = GetTools(row, columns.tools, chat.tools)) return error;
  example = std::move(chat);
  return std::nullopt;
}

MaybeError FromMessages(const ordered_json& row, const FormatSpec& spec, Example& example) {
  const Columns& columns = spec.columns;
  const std::string& name = columns.messages.name;
  const ordered_json* list = Find(row, columns.messages);
  if (list == nullptr) return Missing(columns.messages);
  Chat chat;
  if (auto error = MessageList(name, spec.tags, chat.messages).Add(*list)) return error;
  if (spec.turns == Turns::kAlternate) {
    if (auto error = CheckTurnAbout(name, spec.format, chat.messages)) return error;
  }
  if (auto error = CheckConversation(name, chat.messages)) return error;
  if (auto error = AddSystem(row, columns.system, chat.messages)) return error;
  if (auto error = GetTools(row, columns.tools, chat.tools)) return error;
  example = std::move(chat);
  return std::nullopt;
}

MaybeError FromPromptCompletion(const ordered_json& row, const FormatSpec& spec, Example& example) {
  const Columns& columns = spec.columns;
  const ordered_json* prompt = Find(row, columns.prompt);
  const ordered_json* completion = Find(row, columns.response);
  if (prompt == nullptr) return Missing(columns.prompt);
  if (completion == nullptr) return Missing(columns.response);
  if (prompt->is_string() && completion->is_string()) {
    if (completion->get_ref<const std::string&>().empty()) {
      return Bad(
          absl::StrCat("column ", Quoted(columns.response.name), " is empty, so nothing to learn"));
    }
    example = PromptCompletion{prompt->get<std::string>(), completion->get<std::string>()};
    return std::nullopt;
  }
  if (!prompt->is_array() || !completion->is_array()) {
    return Bad(absl::StrCat("columns ", Quoted(columns.prompt.name), " and ",
                            Quoted(columns.response.name), " are ", Kind(*prompt), " and ",
                            Kind(*completion), ", expected two strings or two arrays of messages"));
  }
  Chat chat;
  if (auto error = MessageList(columns.prompt.name, spec.tags, chat.messages).Add(*prompt)) {
    return error;
  }
  for (ChatMessage& message : chat.messages) message.train = false;
  const size_t prompts = chat.messages.size();
  if (auto error = MessageList(columns.response.name, spec.tags, chat.messages).Add(*completion)) {
    return error;
  }
  if (chat.messages.size() == prompts) {
    return Bad(absl::StrCat("column ", Quoted(columns.response.name), " has no message"));
  }
  const std::string both = absl::StrCat(columns.prompt.name, "+", columns.response.name);
  if (auto error = CheckConversation(both, chat.messages)) return error;
  if (auto error = GetTools(row, columns.tools, chat.tools)) return error;
  example = std::move(chat);
  return std::nullopt;
}

MaybeError FromText(const ordered_json& row, const FormatSpec& spec, Example& example) {
  PlainText text;
  if (auto error = GetText(row, spec.columns.text, text.text)) return error;
  if (text.text.empty()) {
    return Bad(absl::StrCat("column ", Quoted(spec.columns.text.name), " is empty"));
  }
  example = std::move(text);
  return std::nullopt;
}

}  // namespace

std::optional<RowError> ToExample(const ordered_json& row, const FormatSpec& spec,
                                  Example& example) {
  switch (spec.format) {
    case RowFormat::kAlpaca:
      return FromAlpaca(row, spec, example);
    case RowFormat::kShareGpt:
    case RowFormat::kMessages:
      return FromMessages(row, spec, example);
    case RowFormat::kPromptCompletion:
      return FromPromptCompletion(row, spec, example);
    case RowFormat::kText:
      return FromText(row, spec, example);
  }
  return std::nullopt;
}

}  // namespace penstock
