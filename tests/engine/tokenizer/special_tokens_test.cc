#include <string>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "tests/engine/tokenizer/testing.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<ModelTokenizer>> With(const std::string& config,
                                                     const std::string& map = "") {
  return ModelTokenizer::Create({.directory = "model",
                                 .tokenizer_json = testing::SmallTokenizer().dump(),
                                 .tokenizer_config = config,
                                 .special_tokens_map = map});
}

TEST(SpecialTokensTest, AreTextOrObjects) {
  const auto tokenizer = With(R"({"bos_token": "<|begin|>", "pad_token": null,
      "eos_token": {"__type": "AddedToken", "content": "<|end|>"}, "add_bos_token": true})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const SpecialTokenNames& names = (*tokenizer)->special_tokens();
  EXPECT_EQ(names.bos->content, "<|begin|>");
  EXPECT_EQ(names.bos->id, *(*tokenizer)->TokenToId("<|begin|>"));
  EXPECT_EQ(names.eos->content, "<|end|>");
  EXPECT_EQ((*tokenizer)->end_of_document(), names.eos->id);
  EXPECT_FALSE(names.pad.has_value());
  EXPECT_EQ(names.add_bos_token, true);
  EXPECT_FALSE(names.add_eos_token.has_value());
}

TEST(SpecialTokensTest, TheMapFillsInWhatTheConfigDoesNotMention) {
  const std::string map = R"({"eos_token": {"content": "<|end|>"}, "bos_token": "<|begin|>"})";
  const auto tokenizer = With(R"({"bos_token": null})", map);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_FALSE((*tokenizer)->special_tokens().bos.has_value());
  EXPECT_EQ((*tokenizer)->special_tokens().eos->content, "<|end|>");
}

TEST(SpecialTokensTest, WithoutFilesThereAreNone) {
  const auto tokenizer = With("");
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->end_of_document(), std::nullopt);
}

TEST(SpecialTokensTest, EndOfDocumentIsPartOfTheFingerprint) {
  const auto a = With("");
  const auto b = With(R"({"eos_token": "<|end|>"})");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE((*a)->fingerprint(), (*b)->fingerprint());
}

TEST(SpecialTokensTest, OnesThatDoNotExistAreRefusedOrLeftOut) {
  const absl::Status status = With(R"({"eos_token": "<eot>"})").status();
  EXPECT_EQ(ReasonOf(status), reason::kModelInvalid);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("model/tokenizer_config.json: eos_token is \"<eot>\""));
  const auto tokenizer = With(R"({"pad_token": "[PAD]"})");
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_FALSE((*tokenizer)->special_tokens().pad.has_value());
  EXPECT_FALSE(With(R"({"eos_token": 3})").ok());
}

// The reference library would quietly add such tokens, with ids beyond the embedding.
TEST(SpecialTokensTest, TheTwoFilesMustAgreeAboutAddedTokens) {
  const auto tokenizer = With("");
  ASSERT_TRUE(tokenizer.ok());
  const std::string id = std::to_string(*(*tokenizer)->TokenToId("<|end|>"));
  EXPECT_TRUE(With(R"({"added_tokens_decoder": {")" + id + R"(": {"content": "<|end|>"}}})").ok());
  const absl::Status other_id =
      With(R"({"added_tokens_decoder": {"7": {"content": "<|end|>"}}})").status();
  EXPECT_THAT(std::string(other_id.message()), HasSubstr("which has id " + id));
  const absl::Status unknown =
      With(R"({"added_tokens_decoder": {"900": {"content": "<tool>"}}})").status();
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("\"<tool>\", which is not"));
}

}  // namespace
}  // namespace penstock
