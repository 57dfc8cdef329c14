#include "engine/data/example_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "engine/template/builtin_templates.h"
#include "tests/engine/data/data_test_util.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

Chat MakeChat(const std::vector<std::pair<std::string, std::string>>& turns) {
  Chat chat;
  for (const auto& [role, content] : turns) {
    ordered_json fields;
    fields["role"] = role;
    fields["content"] = content;
    chat.messages.push_back({.fields = fields});
  }
  return chat;
}

// Bytes are ids, so that every token can be read.
class ExampleEncoderTest : public testing::Test {
 protected:
  ExampleEncoder Encoder(const ExampleRules& rules = {}) {
    return Must(ExampleEncoder::Create({.tokenizer = &tokenizer_, .chat = &chat_, .rules = rules}));
  }
  EncodeResult Encode(const ExampleEncoder& encoder, const Example& example) {
    const auto result = encoder.Encode(example, encoded_);
    EXPECT_TRUE(std::holds_alternative<EncodeResult>(result));
    return std::get<EncodeResult>(result);
  }
  // The learned tokens as text, "|" where others lie between, "$" for the end of the document.
  std::string Learned() const {
    std::string text;
    for (size_t i = 0; i < encoded_.ids.size(); ++i) {
      if (encoded_.trained[i] == 0) {
        if (!text.empty() && text.back() != '|') text += '|';
        continue;
      }
      const int32_t id = encoded_.ids[i];
      text += id == ByteTokenizer::kEndOfDocument ? '$' : static_cast<char>(id);
    }
    return text;
  }

  ByteTokenizer tokenizer_;
  ChatSetup chat_{.chat_template = Must(BuiltInTemplate("chatml")), .options = {}};
  EncodedExample encoded_;
  const Chat two_turns_ = MakeChat(
      {{"system", "s"}, {"user", "q1"}, {"assistant", "a1"}, {"user", "q2"}, {"assistant", "a2"}});
};

TEST_F(ExampleEncoderTest, OfTextAllIsLearnedWithItsEnd) {
  Encode(Encoder(), PlainText{"ab"});
  EXPECT_THAT(encoded_.ids, ElementsAre('a', 'b', 256));
  EXPECT_THAT(encoded_.trained, ElementsAre(1, 1, 1));
}

TEST_F(ExampleEncoderTest, OfAPairTheCompletionIsLearnedWithItsEnd) {
  Encode(Encoder(), PromptCompletion{"q:", "a"});
  EXPECT_EQ(encoded_.text, "q:a");
  EXPECT_EQ(Learned(), "a$");
  EXPECT_THAT(encoded_.trained, ElementsAre(0, 0, 1, 1));
}

// BC-23
TEST_F(ExampleEncoderTest, OfAChatTheAnswersAreLearnedWithTheEndsOfTheirTurns) {
  Encode(Encoder(), two_turns_);
  EXPECT_THAT(encoded_.text,
              HasSubstr("<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\na1"));
  EXPECT_EQ(Learned(), "a1<|im_end|>\n|a2<|im_end|>\n");
  // Nothing is added to what the template wrote: no second BOS, no second end.
  EXPECT_EQ(encoded_.ids.size(), encoded_.text.size());
}

TEST_F(ExampleEncoderTest, OfAHistoryOnlyTheLastAnswerIsLearnedIfTheJobSaysSo) {
  const ExampleEncoder encoder = Encoder({.mask_history = true});
  Encode(encoder, two_turns_);
  EXPECT_EQ(Learned(), "a2<|im_end|>\n");
  // A message's own flag has its way.
  Chat flagged = two_turns_;
  flagged.messages[2].train = true;
  flagged.messages[4].train = false;
  Encode(encoder, flagged);
  EXPECT_EQ(Learned(), "a1<|im_end|>\n|");
  flagged.messages[2].train = false;
  EXPECT_EQ(Encode(encoder, flagged).fate, ExampleFate::kNothingToLearn);
}

TEST_F(ExampleEncoderTest, TrainOnPromptLearnsEverything) {
  const ExampleEncoder encoder = Encoder({.train_on_prompt = true});
  Encode(encoder, two_turns_);
  EXPECT_EQ(Learned(), encoded_.text);
  Encode(encoder, PromptCompletion{"q", "a"});
  EXPECT_EQ(Learned(), "qa$");
}

TEST_F(ExampleEncoderTest, TooLongExamplesAreDroppedCutOrLeftToTheWindows) {
  const Example pair = PromptCompletion{"12345", "6789"};  // 10 tokens with the end
  const auto with = [](TooLong policy, int64_t tokens) {
    return ExampleRules{.max_tokens = tokens, .too_long = policy};
  };
  EXPECT_EQ(Encode(Encoder(with(TooLong::kDrop, 10)), pair).fate, ExampleFate::kUsed);
  const EncodeResult dropped = Encode(Encoder(with(TooLong::kDrop, 9)), pair);
  EXPECT_EQ(dropped.fate, ExampleFate::kTooLong);
  EXPECT_THAT(dropped.detail, HasSubstr("10 tokens, 9 are allowed"));
  EXPECT_EQ(Encode(Encoder(with(TooLong::kTruncate, 8)), pair).fate, ExampleFate::kTruncated);
  EXPECT_EQ(Learned(), "678");
  const EncodeResult cut = Encode(Encoder(with(TooLong::kTruncate, 5)), pair);
  EXPECT_EQ(cut.fate, ExampleFate::kNothingToLearn);
  EXPECT_THAT(cut.detail, HasSubstr("the answer is cut off"));
  EXPECT_EQ(Encode(Encoder(with(TooLong::kSplit, 5)), pair).fate, ExampleFate::kUsed);
  EXPECT_EQ(encoded_.ids.size(), 10u);
  // Text is cut into windows and never dropped.
  EXPECT_EQ(Encode(Encoder(with(TooLong::kDrop, 5)), PlainText{"0123456789"}).fate,
            ExampleFate::kUsed);
}

TEST_F(ExampleEncoderTest, AnExampleBeyondAllMeasureIsABadRow) {
  const ExampleEncoder encoder = Must(ExampleEncoder::Create({.tokenizer = &tokenizer_}));
  EncodedExample encoded;
  const auto result = encoder.Encode(PlainText{std::string(kMaxExampleBytes + 1, 'x')}, encoded);
  ASSERT_TRUE(std::holds_alternative<RowError>(result));
  EXPECT_THAT(std::get<RowError>(result).message, HasSubstr("16777217 bytes of text, at most"));
}

TEST_F(ExampleEncoderTest, AChatWithoutATemplateIsABadRow) {
  const ExampleEncoder encoder = Must(ExampleEncoder::Create({.tokenizer = &tokenizer_}));
  const auto result = encoder.Encode(two_turns_, encoded_);
  ASSERT_TRUE(std::holds_alternative<RowError>(result));
  EXPECT_THAT(std::get<RowError>(result).message, HasSubstr("no chat template"));
}

TEST_F(ExampleEncoderTest, AConversationWithoutAnAnswerIsABadRow) {
  const auto result = Encoder().Encode(MakeChat({{"user", "q"}}), encoded_);
  ASSERT_TRUE(std::holds_alternative<RowError>(result));
  EXPECT_THAT(std::get<RowError>(result).message, HasSubstr("nothing to train"));
}

TEST_F(ExampleEncoderTest, IntegersThatTemplatesCannotHoldAreABadRow) {
  Chat chat = two_turns_;
  chat.messages[1].fields["n"] = uint64_t{1} << 63;
  const auto result = Encoder().Encode(chat, encoded_);
  ASSERT_TRUE(std::holds_alternative<RowError>(result));
  EXPECT_THAT(std::get<RowError>(result).message, HasSubstr("message 1 has an integer"));
}

TEST_F(ExampleEncoderTest, TheFingerprintCoversTemplateRulesAndTokens) {
  const std::string plain = Encoder().Fingerprint();
  EXPECT_EQ(Encoder().Fingerprint(), plain);
  EXPECT_NE(Encoder({.mask_history = true}).Fingerprint(), plain);
  EXPECT_NE(Encoder({.max_tokens = 5}).Fingerprint(), plain);
  chat_.options.now_unix_seconds = 1;  // chatml prints no date
  EXPECT_EQ(Encoder().Fingerprint(), plain);
  chat_.options.bos_token = "<s>";
  EXPECT_NE(Encoder().Fingerprint(), plain);
  chat_ = {.chat_template = Must(BuiltInTemplate("llama3")), .options = {}};
  EXPECT_NE(Encoder().Fingerprint(), plain);
  const std::string dated = "{{ strftime_now('%Y') }}{% generation %}x{% endgeneration %}";
  chat_ = {.chat_template = Must(ChatTemplate::Parse(dated, "dated")), .options = {}};
  const std::string before = Encoder().Fingerprint();
  chat_.options.now_unix_seconds = 1;
  EXPECT_NE(Encoder().Fingerprint(), before);
}

// A tokenizer that adds a BOS, takes two bytes to a token and has an end of document.
class PairTokenizer final : public Tokenizer {
 public:
  absl::Status Encode(std::string_view text, std::vector<int32_t>& ids) const override {
    Encoding encoding;
    PENSTOCK_RETURN_IF_ERROR(EncodeWithSpans(text, {}, encoding));
    ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
    return absl::OkStatus();
  }
  absl::Status EncodeWithSpans(std::string_view text, const EncodeOptions& options,
                               Encoding& encoding) const override {
    encoding = {};
    if (options.post_process == PostProcess::kAddTokens) {
      encoding.ids.push_back(1);
      encoding.spans.push_back({0, 0});
    }
    for (size_t i = 0; i < text.size(); i += 2) {
      encoding.ids.push_back(100 + static_cast<int32_t>(i / 2));
      encoding.spans.push_back(
          {static_cast<int64_t>(i), static_cast<int64_t>(std::min(i + 2, text.size()))});
    }
    return absl::OkStatus();
  }
  int64_t vocab_size() const override { return 1000; }
  std::string fingerprint() const override { return "pairs"; }
  std::optional<int32_t> end_of_document() const override { return 2; }
};

TEST(DocumentFrameTest, IsWhatTheTokenizerAddsAndTheEndOnce) {
  const PairTokenizer tokenizer;
  const DocumentFrame frame = Must(MakeDocumentFrame(tokenizer));
  EXPECT_THAT(frame.before, ElementsAre(1));
  EXPECT_THAT(frame.after, ElementsAre(2));
}

// The text is tokenized whole: a token that begins in the prompt is prompt, and counted.
TEST(ExampleEncoderSpanTest, ATokenThatStraddlesTheAnswersBeginningIsPrompt) {
  const PairTokenizer tokenizer;
  const ExampleEncoder encoder = Must(ExampleEncoder::Create({.tokenizer = &tokenizer}));
  EncodedExample encoded;
  const auto result = encoder.Encode(PromptCompletion{"abc", "defg"}, encoded);
  ASSERT_TRUE(std::holds_alternative<EncodeResult>(result));
  EXPECT_THAT(encoded.ids, ElementsAre(1, 100, 101, 102, 103, 2));
  EXPECT_THAT(encoded.trained, ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_EQ(encoded.straddling, 1);
}

}  // namespace
}  // namespace penstock
