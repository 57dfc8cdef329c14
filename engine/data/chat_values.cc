#include "engine/data/chat_values.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

// nullopt for a number that the template's integers do not hold. Rows are parsed with a limit to
// their depth, which bounds the recursion.
std::optional<jinja::Value> ToValue(const ordered_json& json) {
  switch (json.type()) {
    case ordered_json::value_t::boolean:
      return jinja::Value::Bool(json.get<bool>());
    case ordered_json::value_t::number_integer:
      return jinja::Value::Int(json.get<int64_t>());
    case ordered_json::value_t::number_unsigned:
      if (json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) return std::nullopt;
      return jinja::Value::Int(json.get<int64_t>());
    case ordered_json::value_t::number_float:
      return jinja::Value::Float(json.get<double>());
    case ordered_json::value_t::string:
      return jinja::Value::String(json.get<std::string>());
    case ordered_json::value_t::array: {
      std::vector<jinja::Value> items;
      for (const ordered_json& item : json) {
        std::optional<jinja::Value> value = ToValue(item);
        if (!value) return std::nullopt;
        items.push_back(*std::move(value));
      }
      return jinja::Value::List(std::move(items));
    }
    case ordered_json::value_t::object: {
      std::vector<std::pair<std::string, jinja::Value>> items;
      for (const auto& [key, item] : json.items()) {
        std::optional<jinja::Value> value = ToValue(item);
        if (!value) return std::nullopt;
        items.emplace_back(key, *std::move(value));
      }
      return jinja::Value::Dict(std::move(items));
    }
    default:
      return jinja::Value();
  }
}

RowError TooLarge(const std::string& where) {
  return {1, absl::StrCat(where, " has an integer that 64 bits do not hold; write it as a string")};
}

}  // namespace

std::optional<RowError> ToConversation(const Chat& chat, Conversation& conversation) {
  std::vector<jinja::Value> messages;
  for (const ChatMessage& message : chat.messages) {
    std::optional<jinja::Value> value = ToValue(message.fields);
    if (!value) return TooLarge(absl::StrCat("message ", messages.size()));
    messages.push_back(*std::move(value));
  }
  std::optional<jinja::Value> tools = ToValue(chat.tools);
  if (!tools) return TooLarge("the tools");
  conversation.messages = jinja::Value::List(std::move(messages));
  conversation.tools = *std::move(tools);
  return std::nullopt;
}

void AddToHash(const ChatSetup& setup, ContentHash& hash) {
  const ChatOptions& options = setup.options;
  hash.UpdateField(setup.chat_template.source());
  for (const std::string* token :
       {&options.bos_token, &options.eos_token, &options.pad_token, &options.unk_token}) {
    hash.UpdateField(*token);
  }
  hash.UpdateField(setup.arguments_json);
  if (absl::StrContains(setup.chat_template.source(), "strftime_now")) {
    hash.UpdateField(absl::StrCat(options.now_unix_seconds));
  }
}

}  // namespace penstock
