// Examples to tokens: the chat template, one tokenization of the whole text, and which of its
// tokens are learned.
//
//   plain text          all of it; the tokenizer's BOS before and the end-of-document after it
//   prompt, completion  one text with the same around it; the completion and the end are learned
//   chat                the text of the chat template, to which nothing is added; what the
//                       assistant says is learned, with the end of its turn
//
// The text is never tokenized in parts: a token that begins in a prompt is part of the prompt,
// and counted if it ends in an answer.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/text_span.h"
#include "engine/data/example.h"
#include "engine/data/example_rules.h"
#include "engine/data/row_error.h"
#include "engine/template/chat_template.h"
#include "engine/tokenizer/tokenizer.h"

namespace penstock {

struct ChatSetup {
  ChatTemplate chat_template;
  ChatOptions options;
  std::string arguments_json = {};  // what options.arguments were made of
};

// Text that is put around every document that is no chat.
struct DocumentFrame {
  std::vector<int32_t> before = {};  // BOS, if the tokenizer has it added
  std::vector<int32_t> after = {};   // the end-of-document
};

// An example of more text is a bad row: its tokens would not fit any row of a batch, and to make
// them takes a hundred times the memory.
inline constexpr int64_t kMaxExampleBytes = int64_t{16} << 20;
// Of longer ones, the threads of an encoder tokenize one at a time.
inline constexpr int64_t kLargeExampleBytes = int64_t{1} << 20;

// What `tokenizer` adds to a text, with its end-of-document at the end, once.
absl::StatusOr<DocumentFrame> MakeDocumentFrame(const Tokenizer& tokenizer);

struct EncodedExample {
  std::string text = {};
  std::vector<int32_t> ids = {};
  std::vector<TextSpan> spans = {};   // of the ids in `text`; empty for ids that stand for none
  std::vector<uint8_t> trained = {};  // 1 for an id that is learned
  int64_t straddling = 0;             // tokens that begin before an answer and end in it
};

enum class ExampleFate : uint8_t { kUsed, kTruncated, kTooLong, kNothingToLearn };

struct EncodeResult {
  ExampleFate fate = ExampleFate::kUsed;
  std::string detail = {};  // "2100 tokens, 2048 are allowed"; unless kUsed
};

// Immutable; used from several threads at once.
class ExampleEncoder {
 public:
  struct Args {
    const Tokenizer* tokenizer = nullptr;  // outlives the encoder
    const ChatSetup* chat = nullptr;       // the same; null if there is no template
    ExampleRules rules = {};
  };
  static absl::StatusOr<ExampleEncoder> Create(const Args& args);

  // Replaces `encoded`. An error is one of the example: a template that refuses it, say.
  std::variant<EncodeResult, RowError> Encode(const Example& example,
                                              EncodedExample& encoded) const;

  const Tokenizer& tokenizer() const { return *args_.tokenizer; }
  const DocumentFrame& frame() const { return frame_; }

  // Everything that the tokens of an example depend on, tokenizer included; of a text document.
  std::string Fingerprint() const;
  std::string TextFingerprint() const;

 private:
  ExampleEncoder(const Args& args, DocumentFrame frame) : args_(args), frame_(std::move(frame)) {}

  std::optional<RowError> EncodeText(const PlainText& example, EncodedExample& encoded) const;
  std::optional<RowError> EncodePair(const PromptCompletion& example,
                                     EncodedExample& encoded) const;
  std::optional<RowError> EncodeChat(const Chat& example, EncodedExample& encoded) const;
  std::optional<RowError> Tokenize(const std::string& text, Encoding& encoding) const;
  std::optional<RowError> AddFramed(std::span<const TrainedSpan> spans,
                                    EncodedExample& encoded) const;
  EncodeResult Limit(bool is_text, EncodedExample& encoded) const;

  Args args_;
  DocumentFrame frame_;
  std::shared_ptr<std::mutex> large_ = std::make_shared<std::mutex>();
};

}  // namespace penstock
