#include "engine/template/chat_mask.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/template/builtin_templates.h"
#include "engine/template/interpreter.h"
#include "engine/template/print.h"
#include "engine/template/text.h"

namespace penstock {
namespace {

using jinja::Value;

// Conversations are rendered once or twice for each message where the template marks nothing.
constexpr size_t kMaxPrefixMessages = 1000;

bool IsAssistant(const Value& message) {
  const Value* role = message.Find("role");
  return role != nullptr && role->is_string() && role->string() == "assistant";
}

absl::Status Refuse(const ChatTemplate& chat_template, absl::string_view message) {
  return jinja::Failure(absl::StrCat(chat_template.name(), ": ", message));
}

std::string WayOut(const ChatTemplate& chat_template) {
  const std::string_view like = SuggestBuiltInTemplate(chat_template.source());
  return absl::StrCat("Use a template with {% generation %} around what the assistant says",
                      like.empty() ? "" : ", for instance the built-in template ",
                      jinja::Absl(like));
}

// Up to 40 bytes of `text` around `at`, in quotes.
std::string Excerpt(std::string_view text, size_t at) {
  size_t begin = at > 20 ? at - 20 : 0;
  size_t end = std::min(at + 20, text.size());
  const auto inside = [&](size_t i) {
    return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
  };
  while (begin > 0 && inside(begin)) --begin;
  while (inside(end)) ++end;
  return jinja::StringRepr(text.substr(begin, end - begin));
}

// InvalidArgument if `part`, the text up to message `index`, is no beginning of `whole`.
absl::Status CheckPrefix(const ChatTemplate& chat_template, const std::string& whole,
                         const std::string& part, size_t index, absl::string_view what) {
  const size_t common =
      std::mismatch(part.begin(), part.end(), whole.begin(), whole.end()).first - part.begin();
  if (common == part.size()) return absl::OkStatus();
  return Refuse(
      chat_template,
      absl::StrCat("what message ", index, " adds to the text cannot be told: the conversation ",
                   what, " it is no beginning of the whole. At byte ", common, " the one has ",
                   Excerpt(part, common), ", the other ", Excerpt(whole, common),
                   "; the template writes earlier turns differently once later ones follow. ",
                   WayOut(chat_template)));
}

absl::StatusOr<TrainingText> ByPrefixes(const ChatTemplate& chat_template,
                                        const Conversation& conversation,
                                        const ChatOptions& options, std::string whole) {
  TrainingText result;
  result.source = TrainingText::Source::kPrefixes;
  const std::vector<Value>& messages = conversation.messages.list();
  if (messages.size() > kMaxPrefixMessages) {
    return Refuse(chat_template,
                  absl::StrCat("the conversation has ", messages.size(),
                               " messages; without {% generation %} at most ", kMaxPrefixMessages,
                               " are supported. ", WayOut(chat_template)));
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!IsAssistant(messages[i])) continue;
    Conversation part = conversation;
    const auto first = messages.begin();
    part.messages = Value::List({first, first + static_cast<ptrdiff_t>(i)});
    PENSTOCK_ASSIGN_OR_RETURN(const RenderedChat before,
                              RenderChat(chat_template, part, options, GenerationPrompt::kYes));
    PENSTOCK_RETURN_IF_ERROR(CheckPrefix(chat_template, whole, before.text, i, "before"));
    size_t end = whole.size();
    if (i + 1 < messages.size()) {
      part.messages = Value::List({first, first + static_cast<ptrdiff_t>(i) + 1});
      PENSTOCK_ASSIGN_OR_RETURN(const RenderedChat after,
                                RenderChat(chat_template, part, options, GenerationPrompt::kNo));
      PENSTOCK_RETURN_IF_ERROR(CheckPrefix(chat_template, whole, after.text, i, "up to"));
      end = after.text.size();
    }
    const int64_t begin = static_cast<int64_t>(before.text.size());
    if (begin < static_cast<int64_t>(end)) {
      result.spans.push_back({begin, static_cast<int64_t>(end), static_cast<int64_t>(i)});
    }
  }
  result.text = std::move(whole);
  return result;
}

}  // namespace

absl::StatusOr<TrainingText> RenderForTraining(const ChatTemplate& chat_template,
                                               const Conversation& conversation,
                                               const ChatOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(
      RenderedChat whole, RenderChat(chat_template, conversation, options, GenerationPrompt::kNo));
  TrainingText result;
  if (!chat_template.has_generation()) {
    PENSTOCK_ASSIGN_OR_RETURN(
        result, ByPrefixes(chat_template, conversation, options, std::move(whole.text)));
  } else if (whole.hidden_generation_line != 0) {
    return Refuse(chat_template,
                  absl::StrCat("the generation block in line ", whole.hidden_generation_line,
                               " writes into a variable or a macro, so that its place in the text "
                               "is not known. Write it where its text goes"));
  } else {
    result.text = std::move(whole.text);
    result.spans = std::move(whole.generation);
  }
  if (!result.spans.empty()) return result;
  const std::vector<Value>& messages = conversation.messages.list();
  if (std::none_of(messages.begin(), messages.end(), IsAssistant)) {
    return Refuse(chat_template,
                  "the conversation has no message of role assistant, so that "
                  "there is nothing to train");
  }
  return Refuse(chat_template,
                absl::StrCat("no text of the conversation is marked as the assistant's. ",
                             WayOut(chat_template)));
}

absl::StatusOr<std::vector<TrainedSpan>> SelectSpans(std::span<const TrainedSpan> spans,
                                                     const std::vector<bool>& train) {
  const bool all = std::all_of(train.begin(), train.end(), [](bool flag) { return flag; });
  std::vector<TrainedSpan> selected;
  for (const TrainedSpan& span : spans) {
    const bool known = span.message >= 0 && span.message < static_cast<int64_t>(train.size());
    if (!known && !all) {
      return jinja::Failure(
          "some messages are not to be trained, but the template does not let it be known which "
          "message a text belongs to: it does not write it inside a loop over the messages");
    }
    if (all || train[static_cast<size_t>(span.message)]) selected.push_back(span);
  }
  return selected;
}

TokenMask MaskTokens(std::span<const TrainedSpan> spans, std::span<const TextSpan> tokens) {
  TokenMask mask;
  mask.trained.reserve(tokens.size());
  size_t next = 0;  // the first span that ends after the token begins
  for (const TextSpan& token : tokens) {
    while (next < spans.size() && spans[next].end <= token.begin) ++next;
    const bool inside = next < spans.size() && spans[next].begin <= token.begin;
    const bool straddles = next < spans.size() && !inside && token.end > spans[next].begin;
    mask.trained.push_back(inside ? 1 : 0);
    if (straddles) ++mask.straddling;
  }
  return mask;
}

}  // namespace penstock
