#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "nlohmann/json.hpp"

namespace penstock {

// Text as it is. All of it is learned.
struct PlainText {
  std::string text;
};

// Two strings that belong together without a chat template. The completion is learned.
struct PromptCompletion {
  std::string prompt;
  std::string completion;
};

struct ChatMessage {
  // What a chat template sees: an object with "role" (system, developer, user, assistant or tool)
  // and "content" (a string, or null beside "tool_calls"), and whatever else the row has.
  nlohmann::ordered_json fields;
  // Whether the row says that this message is learned or not. Without a word, the job's rule.
  std::optional<bool> train = std::nullopt;

  const std::string& role() const { return fields.at("role").get_ref<const std::string&>(); }
};

struct Chat {
  std::vector<ChatMessage> messages;
  nlohmann::ordered_json tools;  // an array of objects, or null
};

// What one row of a dataset says, before any template or tokenizer.
using Example = std::variant<PlainText, PromptCompletion, Chat>;

}  // namespace penstock
