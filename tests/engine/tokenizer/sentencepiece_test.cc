// SentencePiece models: ids, spans and text against the library's (see
// tests/reference/sentencepiece_goldens.py), what tokenizer_config.json adds, and broken files.
#include <cstring>
#include <functional>
#include <string>

#include "engine/base/status.h"
#include "engine/tokenizer/sentencepiece_file.h"
#include "gmock/gmock.h"
#include "tests/engine/tokenizer/testing.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kNames[] = {"bpe_nfkc",      "bpe_trim",         "gemma",       "llama",
                                  "unigram_bytes", "unigram_casefold", "unigram_nfkc"};

std::string ModelOf(const std::string& name) {
  return testing::ReadTestFile("sentencepiece/" + name + ".model");
}

absl::StatusOr<std::unique_ptr<ModelTokenizer>> Load(const std::string& name,
                                                     const std::string& config = "") {
  return ModelTokenizer::Create(
      {.directory = "model", .sentencepiece_model = ModelOf(name), .tokenizer_config = config});
}

std::vector<std::string> Tokens(const ModelTokenizer& tokenizer, const std::string& text,
                                const EncodeOptions& options = {}) {
  std::vector<int32_t> ids;
  EXPECT_TRUE(tokenizer.EncodeIds(text, options, ids).ok());
  std::vector<std::string> tokens;
  for (const int32_t id : ids) tokens.push_back(tokenizer.IdToToken(id).value_or("?"));
  return tokens;
}

TEST(SentencePieceGoldenTest, IdsSpansAndTextAreThoseOfTheLibrary) {
  int64_t tokens = 0;
  for (const std::string name : kNames) {
    const auto tokenizer = Load(name);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const auto cases =
        nlohmann::json::parse(testing::ReadTestFile("sentencepiece/" + name + ".json"));
    for (const nlohmann::json& expected : cases) {
      const auto text = expected[0].get<std::string>();
      const EncodeOptions plain = {.special_text = SpecialText::kPlainText};
      Encoding encoding;
      ASSERT_TRUE((*tokenizer)->EncodeWithSpans(text, plain, encoding).ok()) << name << text;
      EXPECT_EQ(encoding.ids, expected[1].get<std::vector<int32_t>>()) << name << ": " << text;
      const auto wanted = expected[2].get<std::vector<int64_t>>();
      std::vector<int64_t> spans;
      for (const TextSpan& span : encoding.spans) {
        spans.push_back(span.begin);
        spans.push_back(wanted[spans.size()] < 0 ? -1 : span.end);
      }
      EXPECT_EQ(spans, wanted) << name << ": " << text;
      if (!expected[3].is_null()) {
        EXPECT_EQ((*tokenizer)->Decode(encoding.ids, ModelTokenizer::SpecialIds::kKeep),
                  expected[3].get<std::string>())
            << name << ": " << text;
      }
      tokens += static_cast<int64_t>(encoding.ids.size());
    }
  }
  EXPECT_GT(tokens, 4000);
}

TEST(SentencePieceTest, ControlPiecesInTextAreTokensOrText) {
  const auto tokenizer = Load("llama");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(Tokens(**tokenizer, "the</s>"), (std::vector<std::string>{"▁the", "</s>"}));
  EXPECT_EQ(Tokens(**tokenizer, "</s>", {.special_text = SpecialText::kPlainText}).size(), 5u);
  EXPECT_EQ((*tokenizer)->special_tokens().bos->content, "<s>");
  EXPECT_EQ((*tokenizer)->end_of_document(), (*tokenizer)->TokenToId("</s>"));
}

TEST(SentencePieceTest, TheConfigSaysWhatIsPutAround) {
  const EncodeOptions add = {.post_process = PostProcess::kAddTokens};
  EXPECT_EQ(Tokens(**Load("llama"), "the", add), (std::vector<std::string>{"<s>", "▁the"}));
  EXPECT_EQ(
      Tokens(**Load("llama", R"({"add_bos_token": false, "add_eos_token": true})"), "the", add),
      (std::vector<std::string>{"▁the", "</s>"}));
  EXPECT_EQ(Tokens(**Load("llama", R"({"bos_token": null})"), "the", add),
            (std::vector<std::string>{"▁the"}));
}

TEST(SentencePieceTest, TextAfterATokenHasASpaceBeforeItUnlessNotLegacy) {
  const std::string text = "the</s>the";
  EXPECT_EQ(Tokens(**Load("llama"), text), (std::vector<std::string>{"▁the", "</s>", "▁the"}));
  EXPECT_EQ(Tokens(**Load("llama", R"({"legacy": false})"), text),
            (std::vector<std::string>{"▁the", "</s>", "t", "he"}));
  EXPECT_EQ(Tokens(**Load("llama", R"({"legacy": false, "add_prefix_space": false})"), text),
            (std::vector<std::string>{"t", "he", "</s>", "t", "he"}));
}

TEST(SentencePieceTest, AddedTokensExtendTheModelOrRenameItsPieces) {
  const auto tokenizer = Load("llama", R"({"eos_token": "<|im_end|>", "added_tokens_decoder": {
      "700": {"content": "<|im_end|>", "special": true, "rstrip": true},
      "260": {"content": "[renamed]"}}})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->Encode("[renamed]<|im_end|>  the", ids).ok());
  EXPECT_EQ(ids, (std::vector<int32_t>{260, 700, *(*tokenizer)->TokenToId("▁the")}));
  EXPECT_EQ((*tokenizer)->IdToToken(260), "[renamed]");
  EXPECT_EQ((*tokenizer)->vocab_size(), 701);
  EXPECT_EQ((*tokenizer)->end_of_document(), 700);
  EXPECT_NE((*tokenizer)->fingerprint(), (*Load("llama"))->fingerprint());
  EXPECT_EQ((*tokenizer)->Decode(ids, ModelTokenizer::SpecialIds::kLeaveOut), "[renamed] the");
}

TEST(SentencePieceTest, TokensOfTheOlderFileCountToo) {
  const auto tokenizer = ModelTokenizer::Create({.directory = "model",
                                                 .sentencepiece_model = ModelOf("llama"),
                                                 .added_tokens = R"({"<|im_start|>": 650})"});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(Tokens(**tokenizer, "<|im_start|>the"),
            (std::vector<std::string>{"<|im_start|>", "▁the"}));
}

TEST(SentencePieceTest, AnAddedTokenWithAnotherIdThanThePieceIsRefused) {
  const absl::Status status =
      Load("llama", R"({"added_tokens_decoder": {"7": {"content": "</s>"}}})").status();
  EXPECT_EQ(ReasonOf(status), reason::kModelInvalid);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("</s>"), HasSubstr("has id 2")));
}

// A heap of merges, not a scan for each: quadratic time would take hours here.
TEST(SentencePieceTest, TenMegabytesMayBeOneWord) {
  std::vector<int32_t> ids;
  ASSERT_TRUE((*Load("llama"))->Encode(std::string(10'000'000, 'o'), ids).ok());
  EXPECT_GT(ids.size(), 1'000'000u);
}

TEST(SentencePieceRefusalTest, NamesWhatIsWrong) {
  const auto message = [](const std::string& content) {
    const absl::Status status = ReadSentencePieceFile(content, "m/tokenizer.model").status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  };
  const std::string model = ModelOf("llama");
  EXPECT_THAT(message(model.substr(0, model.size() - 3)), HasSubstr("no SentencePiece model"));
  EXPECT_THAT(message("IQ== 0\nIg== 1\n"), HasSubstr("tokenizer.json"));
  EXPECT_THAT(message("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("git lfs pull"));
  // Messages of one kind add up when they are concatenated: a field here overrides the model's.
  const auto with = [&](const std::string& fields) { return message(model + fields); };
  EXPECT_THAT(with("\x12\x02\x18\x03"), HasSubstr("model_type is word"));
  EXPECT_THAT(with(std::string("\x12\x03\x98\x02\x00", 5)), HasSubstr("byte_fallback is false"));
  EXPECT_THAT(with("\x12\x03\xC0\x01\x01"), HasSubstr("treat_whitespace_as_suffix"));
  EXPECT_THAT(with("\x1A\x06\x12\x04zzzz"), HasSubstr("precompiled_charsmap is broken"));
  EXPECT_THAT(with("\x0A\x06\x0A\x04</s>"), HasSubstr("(\"</s>\") is there twice"));
  EXPECT_THAT(with(std::string("\x0A\x00", 2)), HasSubstr("is empty"));
  EXPECT_THAT(with("\x0A\x03\x0A\x01\xFF"), HasSubstr("not UTF-8"));
  EXPECT_THAT(with("\x0A\x05\x0A\x01~\x18\x02"), HasSubstr("has 2 pieces of type UNKNOWN"));
  EXPECT_THAT(with("\x0A\x05\x0A\x01~\x18\x05"), HasSubstr("is unused"));
  EXPECT_THAT(with(std::string("\x0A\x08\x0A\x01~\x15\x00\x00\xC0\x7F", 10)),
              HasSubstr("score that is no number"));
  EXPECT_THAT(with("\x0A\xC4\x04\x0A\xC1\x04" + std::string(577, 'a')), HasSubstr("577 bytes"));
}

}  // namespace
}  // namespace penstock
