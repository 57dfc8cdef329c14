#include "engine/template/chat_template.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/interpreter.h"
#include "engine/template/parser.h"
#include "engine/template/text.h"

namespace penstock {
namespace {

using jinja::Value;

// Refuses strings that are no UTF-8, and what nests too deep to be looked through. What a caller
// passes in is a tree, so that this takes time in proportion to its size.
absl::Status CheckValue(const Value& value, const jinja::Limits& limits) {
  if (value.nesting() > limits.max_value_depth) {
    return jinja::Failure(absl::StrCat("it nests deeper than ", limits.max_value_depth, " levels"));
  }
  if (value.is_string() && !jinja::IsValidUtf8(value.string())) {
    return jinja::Failure("a string in it is not valid UTF-8");
  }
  if (value.is_sequence()) {
    for (const Value& item : value.list()) PENSTOCK_RETURN_IF_ERROR(CheckValue(item, limits));
  }
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict()) {
      PENSTOCK_RETURN_IF_ERROR(CheckValue(key, limits));
      PENSTOCK_RETURN_IF_ERROR(CheckValue(item, limits));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMessages(const Value& messages) {
  if (!messages.is_list()) return jinja::Failure("messages is no list");
  for (size_t i = 0; i < messages.list().size(); ++i) {
    if (messages.list()[i].is_dict()) continue;
    return jinja::Failure(absl::StrCat("message ", i, " is no object with role and content, but ",
                                       jinja::Absl(TypeName(messages.list()[i]))));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string source, std::string name) {
  absl::StatusOr<jinja::Syntax> syntax = jinja::Parse(source);
  if (!syntax.ok()) {
    return Error(syntax.status().code(), ReasonOf(syntax.status()),
                 absl::StrCat(name, ", ", syntax.status().message()));
  }
  ChatTemplate result;
  result.name_ = std::move(name);
  result.source_ = std::make_shared<const std::string>(std::move(source));
  result.syntax_ = std::make_shared<const jinja::Syntax>(*std::move(syntax));
  return result;
}

bool ChatTemplate::has_generation() const { return syntax_->has_generation; }

absl::StatusOr<RenderedChat> RenderChat(const ChatTemplate& chat_template,
                                        const Conversation& conversation,
                                        const ChatOptions& options, GenerationPrompt prompt) {
  jinja::RenderInput input;
  input.now_unix_seconds = options.now_unix_seconds;
  input.variables = options.arguments;
  // As Hugging Face does: tools and documents are None where there are none, special tokens are
  // left out where the tokenizer has none.
  const auto add = [&](std::string_view name, Value value) {
    input.variables.emplace_back(name, std::move(value));
  };
  add("messages", conversation.messages);
  add("tools", conversation.tools);
  add("documents", conversation.documents);
  add("add_generation_prompt", Value::Bool(prompt == GenerationPrompt::kYes));
  for (const auto& [name, token] :
       {std::pair<std::string_view, const std::string&>("bos_token", options.bos_token),
        {"eos_token", options.eos_token},
        {"pad_token", options.pad_token},
        {"unk_token", options.unk_token}}) {
    if (!token.empty()) add(name, Value::String(token));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckMessages(conversation.messages));
  for (const auto& [name, value] : input.variables) {
    PENSTOCK_RETURN_IF_ERROR(
        Annotate(CheckValue(value, options.limits), absl::StrCat("the conversation's ", name)));
  }
  jinja::Interpreter interpreter(chat_template.syntax(), input, options.limits);
  absl::StatusOr<jinja::Rendering> rendering = interpreter.Run();
  if (!rendering.ok()) {
    return Error(rendering.status().code(), ReasonOf(rendering.status()),
                 absl::StrCat(chat_template.name(), ", ", rendering.status().message()));
  }
  RenderedChat chat;
  chat.text = std::move(rendering->text);
  chat.hidden_generation_line = rendering->hidden_generation_line;
  for (const jinja::GenerationSpan& span : rendering->generation) {
    chat.generation.push_back({span.begin, span.end, span.message});
  }
  return chat;
}

}  // namespace penstock
