#include "engine/data/example_encoder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/data/chat_values.h"
#include "engine/data/hash.h"
#include "engine/template/chat_mask.h"

namespace penstock {
namespace {

using MaybeError = std::optional<RowError>;

MaybeError Bad(std::string message) { return RowError{1, std::move(message)}; }
MaybeError Bad(const absl::Status& status) { return Bad(std::string(status.message())); }

// Which messages are learned, as far as their role lets them be.
std::vector<bool> TrainedMessages(const Chat& chat, bool mask_history) {
  size_t last_answer = 0;
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    if (chat.messages[i].role() == "assistant") last_answer = i;
  }
  std::vector<bool> train(chat.messages.size());
  for (size_t i = 0; i < train.size(); ++i) {
    train[i] = chat.messages[i].train.value_or(!mask_history || i == last_answer);
  }
  return train;
}

void ResizeTo(int64_t tokens, EncodedExample& encoded) {
  encoded.ids.resize(tokens);
  encoded.spans.resize(tokens);
  encoded.trained.resize(tokens);
}

// Whether any token is a label: the first one of a document never is.
bool Learns(const EncodedExample& encoded) {
  return encoded.trained.size() > 1 &&
         std::any_of(encoded.trained.begin() + 1, encoded.trained.end(),
                     [](uint8_t trained) { return trained != 0; });
}

}  // namespace

absl::StatusOr<DocumentFrame> MakeDocumentFrame(const Tokenizer& tokenizer) {
  // What is added to a text is what has no part of it.
  Encoding encoding;
  PENSTOCK_RETURN_IF_ERROR(
      tokenizer.EncodeWithSpans("a", {.post_process = PostProcess::kAddTokens}, encoding));
  const auto added = [](const TextSpan& span) { return span.begin == span.end; };
  const auto first = std::find_if_not(encoding.spans.begin(), encoding.spans.end(), added);
  const auto last = std::find_if_not(encoding.spans.rbegin(), encoding.spans.rend(), added).base();
  DocumentFrame frame;
  if (first != encoding.spans.end()) {
    const auto ids = encoding.ids.begin();
    frame.before.assign(ids, ids + (first - encoding.spans.begin()));
    frame.after.assign(ids + (last - encoding.spans.begin()), encoding.ids.end());
  }
  const std::optional<int32_t> end = tokenizer.end_of_document();
  if (end && (frame.after.empty() || frame.after.back() != *end)) frame.after.push_back(*end);
  return frame;
}

absl::StatusOr<ExampleEncoder> ExampleEncoder::Create(const Args& args) {
  PENSTOCK_ASSIGN_OR_RETURN(DocumentFrame frame, MakeDocumentFrame(*args.tokenizer));
  return ExampleEncoder(args, std::move(frame));
}

std::variant<EncodeResult, RowError> ExampleEncoder::Encode(const Example& example,
                                                            EncodedExample& encoded) const {
  encoded = {};
  MaybeError error;
  const auto* text = std::get_if<PlainText>(&example);
  if (text != nullptr) {
    error = EncodeText(*text, encoded);
  } else if (const auto* pair = std::get_if<PromptCompletion>(&example)) {
    error = EncodePair(*pair, encoded);
  } else {
    error = EncodeChat(std::get<Chat>(example), encoded);
  }
  if (error) return *std::move(error);
  return Limit(text != nullptr, encoded);
}

MaybeError ExampleEncoder::EncodeText(const PlainText& example, EncodedExample& encoded) const {
  encoded.text = example.text;
  const TrainedSpan all = {0, static_cast<int64_t>(encoded.text.size())};
  return AddFramed(std::span(&all, 1), encoded);
}

MaybeError ExampleEncoder::EncodePair(const PromptCompletion& example,
                                      EncodedExample& encoded) const {
  encoded.text = absl::StrCat(example.prompt, example.completion);
  const TrainedSpan completion = {static_cast<int64_t>(example.prompt.size()),
                                  static_cast<int64_t>(encoded.text.size())};
  return AddFramed(std::span(&completion, 1), encoded);
}

MaybeError ExampleEncoder::Tokenize(const std::string& text, Encoding& encoding) const {
  const auto bytes = static_cast<int64_t>(text.size());
  if (bytes > kMaxExampleBytes) {
    return Bad(absl::StrCat("an example of ", bytes, " bytes of text, at most ", kMaxExampleBytes,
                            " are taken; split it, or give long text as a text file, which is cut "
                            "into windows"));
  }
  std::unique_lock<std::mutex> alone;
  if (bytes > kLargeExampleBytes) alone = std::unique_lock<std::mutex>(*large_);
  const absl::Status status = args_.tokenizer->EncodeWithSpans(text, {}, encoding);
  if (!status.ok()) return Bad(status);
  return std::nullopt;
}

MaybeError ExampleEncoder::AddFramed(std::span<const TrainedSpan> spans,
                                     EncodedExample& encoded) const {
  Encoding encoding;
  if (auto error = Tokenize(encoded.text, encoding)) return error;
  const TokenMask mask = MaskTokens(spans, encoding.spans);
  encoded.straddling = mask.straddling;
  const auto add = [&](const std::vector<int32_t>& ids, int64_t at, uint8_t trained) {
    encoded.ids.insert(encoded.ids.end(), ids.begin(), ids.end());
    encoded.spans.insert(encoded.spans.end(), ids.size(), TextSpan{at, at});
    encoded.trained.insert(encoded.trained.end(), ids.size(), trained);
  };
  // Where all is learned, what is put before it is too: a document's first token never is a label.
  const bool learn_all = spans[0].begin == 0;
  add(frame_.before, 0, learn_all ? 1 : 0);
  encoded.ids.insert(encoded.ids.end(), encoding.ids.begin(), encoding.ids.end());
  encoded.spans.insert(encoded.spans.end(), encoding.spans.begin(), encoding.spans.end());
  encoded.trained.insert(encoded.trained.end(), mask.trained.begin(), mask.trained.end());
  add(frame_.after, static_cast<int64_t>(encoded.text.size()), 1);
  return std::nullopt;
}

MaybeError ExampleEncoder::EncodeChat(const Chat& example, EncodedExample& encoded) const {
  if (args_.chat == nullptr) {
    return Bad(
        "a conversation, but the model has no chat template; name one in data.chat.template");
  }
  Conversation conversation;
  if (auto error = ToConversation(example, conversation)) return error;
  absl::StatusOr<TrainingText> text =
      RenderForTraining(args_.chat->chat_template, conversation, args_.chat->options);
  if (!text.ok()) return Bad(text.status());
  const std::vector<bool> train = TrainedMessages(example, args_.rules.mask_history);
  if (std::find(train.begin(), train.end(), false) != train.end()) {
    absl::StatusOr<std::vector<TrainedSpan>> selected = SelectSpans(text->spans, train);
    if (!selected.ok()) return Bad(selected.status());
    text->spans = *std::move(selected);
  }
  Encoding encoding;
  if (auto error = Tokenize(text->text, encoding)) return error;
  TokenMask mask = MaskTokens(text->spans, encoding.spans);
  encoded = {.text = std::move(text->text),
             .ids = std::move(encoding.ids),
             .spans = std::move(encoding.spans),
             .trained = std::move(mask.trained),
             .straddling = mask.straddling};
  return std::nullopt;
}

EncodeResult ExampleEncoder::Limit(bool is_text, EncodedExample& encoded) const {
  const auto tokens = static_cast<int64_t>(encoded.ids.size());
  const ExampleRules& rules = args_.rules;
  if (rules.train_on_prompt) std::fill(encoded.trained.begin(), encoded.trained.end(), uint8_t{1});
  const bool too_long = !is_text && rules.max_tokens > 0 && tokens > rules.max_tokens;
  const std::string length =
      absl::StrCat(tokens, " tokens, ", rules.max_tokens, " are allowed (batch.sequence_length)");
  if (too_long && rules.too_long == TooLong::kDrop) return {ExampleFate::kTooLong, length};
  const bool learned_before = Learns(encoded);
  const bool cut = too_long && rules.too_long == TooLong::kTruncate;
  if (cut) ResizeTo(rules.max_tokens, encoded);
  if (!Learns(encoded)) {
    return {ExampleFate::kNothingToLearn, learned_before
                                              ? absl::StrCat("the answer is cut off: ", length)
                                              : std::string("no token of it is learned")};
  }
  return cut ? EncodeResult{ExampleFate::kTruncated, length} : EncodeResult{};
}

std::string ExampleEncoder::TextFingerprint() const {
  std::string text = args_.tokenizer->fingerprint();
  for (const int32_t id : frame_.before) absl::StrAppend(&text, " ", id);
  absl::StrAppend(&text, " |");
  for (const int32_t id : frame_.after) absl::StrAppend(&text, " ", id);
  return text;
}

std::string ExampleEncoder::Fingerprint() const {
  ContentHash hash;
  hash.UpdateField("penstock example encoder 1");
  hash.UpdateField(TextFingerprint());
  for (const int64_t value :
       {int64_t{args_.rules.train_on_prompt}, int64_t{args_.rules.mask_history},
        args_.rules.max_tokens, static_cast<int64_t>(args_.rules.too_long)}) {
    hash.UpdateField(absl::StrCat(value));
  }
  if (args_.chat != nullptr) AddToHash(*args_.chat, hash);
  return hash.HexDigest();
}

}  // namespace penstock
