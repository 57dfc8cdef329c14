// Chat templates: how a model's publisher writes a conversation as text. A template is a Jinja
// program out of the model's directory, run as Hugging Face's apply_chat_template runs it, but
// without a host to reach and within limits (engine/template/limits.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/template/limits.h"
#include "engine/template/value.h"

namespace penstock {

namespace jinja {
struct Syntax;
}  // namespace jinja

struct Conversation {
  jinja::Value messages;   // a list of dicts: role, content, tool_calls, reasoning_content, ...
  jinja::Value tools;      // a list of dicts, or None
  jinja::Value documents;  // a list of dicts, or None
};

struct ChatOptions {
  // Of the tokenizer; "" where it has none.
  std::string bos_token = {}, eos_token = {}, pad_token = {}, unk_token = {};
  // What else the template is told: enable_thinking and its like. Names are distinct.
  std::vector<std::pair<std::string, jinja::Value>> arguments = {};
  // What strftime_now() prints, in UTC; fixed, so that a row is the same text every time.
  int64_t now_unix_seconds = 0;
  jinja::Limits limits = {};
};

// A part of the text that an assistant said: bytes [begin, end), and which of the messages it
// belongs to, -1 if the template does not let that be known.
struct TrainedSpan {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t message = -1;

  friend bool operator==(const TrainedSpan&, const TrainedSpan&) = default;
};

struct RenderedChat {
  std::string text;
  std::vector<TrainedSpan> generation;  // of {% generation %} blocks: in order, disjoint, not empty
  // The line of a generation block whose output went into a variable or a macro's result, so
  // that its place in the text is not known; 0 if there was none.
  int hidden_generation_line = 0;
};

// Immutable; copies share the parsed template; may be used by several threads.
class ChatTemplate {
 public:
  // `name` is what errors call it: "chat_template.jinja of the model". InvalidArgument /
  // DATA_INVALID: "<name>, line 12: ...".
  static absl::StatusOr<ChatTemplate> Parse(std::string source, std::string name);

  const std::string& name() const { return name_; }
  const std::string& source() const { return *source_; }
  const jinja::Syntax& syntax() const { return *syntax_; }
  // Whether {% generation %} marks what is trained.
  bool has_generation() const;

 private:
  ChatTemplate() = default;

  std::string name_;
  std::shared_ptr<const std::string> source_;
  std::shared_ptr<const jinja::Syntax> syntax_;
};

enum class GenerationPrompt { kNo, kYes };

// The conversation as text; with kYes, up to where the assistant starts to speak. Errors name the
// template and the line: what the template itself refuses (raise_exception), what it does wrong
// with this conversation, which limit it hit (ResourceExhausted).
absl::StatusOr<RenderedChat> RenderChat(const ChatTemplate& chat_template,
                                        const Conversation& conversation,
                                        const ChatOptions& options, GenerationPrompt prompt);

}  // namespace penstock
