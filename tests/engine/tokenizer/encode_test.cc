#include <algorithm>
#include <string>
#include <thread>

#include "tests/engine/tokenizer/testing.h"

namespace penstock {
namespace {

std::unique_ptr<ModelTokenizer> LoadGolden(const std::string& name) {
  auto tokenizer = testing::Load(testing::ReadGolden(name)["tokenizer"]);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::vector<int32_t> Ids(const ModelTokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids;
  EXPECT_TRUE(tokenizer.Encode(text, ids).ok());
  return ids;
}

TEST(ModelTokenizerTest, ByteLevelTextComesBackFromItsIds) {
  const std::string text =
      "Any text, déjà vu, 日本語 👩‍👧\n\n\t1234 <|begin|> e\u0301 \uFFFD\x01" +
      std::string(1, '\0');
  for (const std::string name : {"llama3", "o200k", "deepseek", "starcoder"}) {
    const auto tokenizer = LoadGolden(name);
    EXPECT_EQ(tokenizer->Decode(Ids(*tokenizer, text), ModelTokenizer::SpecialIds::kKeep), text)
        << name;
  }
}

// A heap of merges, not a scan for each: quadratic time would take hours here.
TEST(ModelTokenizerTest, TenMegabytesMayBeOneWord) {
  constexpr size_t kPairs = 5'000'000;
  std::string text;
  for (size_t i = 0; i < kPairs; ++i) text += "in";
  for (const std::string name : {"llama3", "gemma"}) {
    const auto tokenizer = LoadGolden(name);
    const std::vector<int32_t> ids = Ids(*tokenizer, text);
    ASSERT_EQ(ids.size(), kPairs) << name;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer->TokenToId("in")), kPairs) << name;
  }
}

TEST(ModelTokenizerTest, ManyThreadsShareOneTokenizer) {
  const auto tokenizer = LoadGolden("qwen");
  const std::string text = "the quick brown fox e\u0301 jumps; don't <|im_end|> 1999 ";
  const std::vector<int32_t> expected = Ids(*tokenizer, text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) {
        std::vector<int32_t> ids;
        if (!tokenizer->Encode(text, ids).ok() || ids != expected) ++wrong[i];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(ModelTokenizerTest, SpecialTokensInTextAreTokensOrText) {
  const auto tokenizer = LoadGolden("qwen");
  const int32_t end = *tokenizer->TokenToId("<|im_end|>");
  const int32_t think = *tokenizer->TokenToId("<think>");
  const std::string text = "a<|im_end|><think>";
  EXPECT_EQ(Ids(*tokenizer, text), (std::vector<int32_t>{*tokenizer->TokenToId("a"), end, think}));
  std::vector<int32_t> ids;
  ASSERT_TRUE(tokenizer->EncodeIds(text, {.special_text = SpecialText::kPlainText}, ids).ok());
  EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 0);
  EXPECT_EQ(ids.back(), think);  // added, but not special
  EXPECT_EQ(tokenizer->Decode(ids, ModelTokenizer::SpecialIds::kKeep), text);
}

TEST(ModelTokenizerTest, DecodingLeavesOutSpecialTokensAndUnknownIds) {
  const auto tokenizer = LoadGolden("qwen");
  std::vector<int32_t> ids = Ids(*tokenizer, "<|im_start|>the<|im_end|>");
  ids.push_back(1'000'000);
  ids.push_back(-1);
  EXPECT_EQ(tokenizer->Decode(ids, ModelTokenizer::SpecialIds::kLeaveOut), "the");
  EXPECT_EQ(tokenizer->Decode(ids, ModelTokenizer::SpecialIds::kKeep), "<|im_start|>the<|im_end|>");
  const int32_t half[] = {*tokenizer->TokenToId("Ã")};  // the first byte of two
  EXPECT_EQ(tokenizer->Decode(half, ModelTokenizer::SpecialIds::kKeep), "\uFFFD");
}

TEST(ModelTokenizerTest, FindsTokensAndIds) {
  const auto tokenizer = LoadGolden("qwen");
  const std::optional<int32_t> id = tokenizer->TokenToId("Ġthe");
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(tokenizer->IdToToken(*id), "Ġthe");
  EXPECT_EQ(tokenizer->TokenToId("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer->IdToToken(100'000), std::nullopt);
  ASSERT_EQ(tokenizer->added_tokens().size(), 4u);
  EXPECT_EQ(tokenizer->added_tokens().back().content, "</think>");
  EXPECT_EQ(tokenizer->vocab_size(), tokenizer->added_tokens().back().id + 1);
}

TEST(ModelTokenizerTest, FingerprintFollowsTheFile) {
  const nlohmann::json file = testing::SmallTokenizer();
  nlohmann::json other = file;
  other["normalizer"] = {{"type", "NFC"}};
  const auto a = testing::Load(file);
  const auto again = testing::Load(file);
  const auto b = testing::Load(other);
  ASSERT_TRUE(a.ok() && again.ok() && b.ok());
  EXPECT_EQ((*a)->fingerprint(), (*again)->fingerprint());
  EXPECT_NE((*a)->fingerprint(), (*b)->fingerprint());
}

// BC-25
TEST(ModelTokenizerTest, BothWaysOfWritingMergesAreOneTokenizer) {
  nlohmann::json text = testing::SmallTokenizer();
  nlohmann::json pairs = text;
  ASSERT_TRUE(text["model"]["merges"][0].is_string());
  for (nlohmann::json& merge : pairs["model"]["merges"]) {
    const auto line = merge.get<std::string>();
    const size_t space = line.find(' ');
    merge = {line.substr(0, space), line.substr(space + 1)};
  }
  const auto a = testing::Load(text);
  const auto b = testing::Load(pairs);
  ASSERT_TRUE(a.ok() && b.ok());
  const std::string sample = "the quick brown fox jumps over the lazy dog there then";
  EXPECT_EQ(Ids(**a, sample), Ids(**b, sample));
  EXPECT_LT(Ids(**a, sample).size(), sample.size() / 2);
}

}  // namespace
}  // namespace penstock
