// What a tokenizer.json may not have, and how the refusal reads.
#include <functional>
#include <string>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "tests/engine/tokenizer/testing.h"

namespace penstock {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status StatusWith(const std::function<void(json&)>& change) {
  json tokenizer = testing::SmallTokenizer();
  change(tokenizer);
  return testing::Load(tokenizer).status();
}

void ExpectUnsupported(const std::function<void(json&)>& change, const std::string& path,
                       const std::string& name) {
  const absl::Status status = StatusWith(change);
  EXPECT_EQ(ReasonOf(status), reason::kModelUnsupported) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("model/tokenizer.json: " + path), HasSubstr(name)));
}

void ExpectInvalid(const std::function<void(json&)>& change, const std::string& part) {
  const absl::Status status = StatusWith(change);
  EXPECT_EQ(ReasonOf(status), reason::kModelInvalid) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

TEST(TokenizerRefusalTest, UnknownComponentsAreNamed) {
  for (const char* type : {"WordPiece", "Unigram", "WordLevel", "Novel"}) {
    ExpectUnsupported([&](json& t) { t["model"]["type"] = type; }, "model.type", type);
  }
  for (const char* type : {"Precompiled", "Nmt", "BertNormalizer", "Novel"}) {
    ExpectUnsupported(
        [&](json& t) {
          t["normalizer"] = {{"type", type}};
        },
        "normalizer.type", type);
  }
  for (const char* type : {"BertPreTokenizer", "UnicodeScripts", "FixedLength", "Novel"}) {
    ExpectUnsupported(
        [&](json& t) {
          t["pre_tokenizer"] = {{"type", type}};
        },
        "pre_tokenizer.type", type);
  }
  ExpectUnsupported(
      [](json& t) { t["pre_tokenizer"]["pretokenizers"][1]["type"] = "CharDelimiterSplit"; },
      "pre_tokenizer.pretokenizers[1].type", "CharDelimiterSplit");
  ExpectUnsupported(
      [](json& t) {
        t["post_processor"] = {{"type", "Novel"}};
      },
      "post_processor.type", "Novel");
  for (const char* type : {"WordPiece", "CTC", "Novel"}) {
    ExpectUnsupported([&](json& t) { t["decoder"] = {{"type", type}}; }, "decoder.type", type);
  }
  ExpectUnsupported([](json& t) { t["model"]["dropout"] = 0.1; }, "model.dropout", "null");
}

TEST(TokenizerRefusalTest, ModelsThatContradictThemselves) {
  ExpectInvalid([](json& t) { t.erase("model"); }, "model is missing");
  ExpectInvalid([](json& t) { t["model"]["vocab"] = json::array(); }, "model.vocab is a list");
  ExpectInvalid([](json& t) { t["model"]["vocab"]["a"] = -1; }, "the id -1");
  ExpectInvalid([](json& t) { t["model"]["vocab"]["a"] = 1LL << 40; }, "the id 1099511627776");
  ExpectInvalid([](json& t) { t["model"]["vocab"]["b"] = t["model"]["vocab"]["a"]; }, "to both");
  ExpectInvalid([](json& t) { t["model"]["merges"] = 7; }, "model.merges is 7");
  ExpectInvalid([](json& t) { t["model"]["merges"][3] = "abc"; }, "\"abc\" as entry 3");
  ExpectInvalid([](json& t) { t["model"]["merges"][3] = "a b c"; }, "\"a b c\" as entry 3");
  ExpectInvalid([](json& t) { t["model"]["merges"][3] = {"a", "b"}; }, "as entry 3");
  ExpectInvalid([](json& t) { t["model"]["merges"][0] = "a zz"; }, "needs the token \"zz\"");
  ExpectInvalid([](json& t) { t["model"]["unk_token"] = "<none>"; }, "model.unk_token");
  ExpectInvalid([](json& t) { t["model"]["byte_fallback"] = "yes"; }, "model.byte_fallback");
}

TEST(TokenizerRefusalTest, AddedTokensThatContradictTheVocabulary) {
  ExpectInvalid([](json& t) { t["added_tokens"][0]["id"] = 5; }, "added_tokens[0].id is 5");
  ExpectInvalid([](json& t) { t["added_tokens"][1]["id"] = 1000; }, "added_tokens[1].id is 1000");
  ExpectInvalid([](json& t) { t["added_tokens"][1]["content"] = t["added_tokens"][0]["content"]; },
                "which an earlier entry has");
  ExpectInvalid([](json& t) { t["added_tokens"][0]["content"] = std::string(5000, 'x'); },
                "5000 bytes");
  ExpectInvalid([](json& t) { t["added_tokens"] = {1}; }, "added_tokens has 1 as entry 0");
}

TEST(TokenizerRefusalTest, ComponentsWithWrongFields) {
  ExpectInvalid(
      [](json& t) {
        t["normalizer"] = {{"type", "Replace"}, {"content", "x"}};
      },
      "normalizer.pattern");
  ExpectInvalid([](json& t) { t["normalizer"] = {{"type", "Prepend"}}; }, "normalizer.prepend");
  ExpectInvalid([](json& t) { t["normalizer"] = "NFC"; }, "normalizer is \"NFC\"");
  ExpectInvalid(
      [](json& t) {
        t["normalizer"] = {{"type", "Sequence"}};
      },
      "normalizer.normalizers");
  ExpectInvalid([](json& t) { t["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Shuffled"; },
                "pretokenizers[0].behavior");
  ExpectInvalid(
      [](json& t) {
        t["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"Regex", "[a"}};
      },
      "pretokenizers[0].pattern.Regex \"[a\"");
  ExpectInvalid(
      [](json& t) {
        t["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "ab"}};
      },
      "pre_tokenizer.replacement");
  ExpectInvalid([](json& t) { t["post_processor"]["processors"][1]["special_tokens"] = {}; },
                "single[0].SpecialToken.id");
  ExpectInvalid([](json& t) { t["post_processor"]["processors"][1]["single"] = json::array(); },
                "has the text 0 times");
  json many = json::array();
  for (int i = 0; i < 100; ++i) many.push_back({{"type", "NFC"}});
  ExpectInvalid(
      [&](json& t) {
        t["normalizer"] = {{"type", "Sequence"}, {"normalizers", many}};
      },
      "more than 64 components");
}

TEST(TokenizerRefusalTest, FilesThatAreSomethingElse) {
  const auto message = [](const std::string& text) {
    const auto tokenizer = ModelTokenizer::Create({.directory = "m", .tokenizer_json = text});
    EXPECT_EQ(ReasonOf(tokenizer.status()), reason::kModelInvalid);
    return std::string(tokenizer.status().message());
  };
  EXPECT_THAT(message("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("git lfs pull"));
  EXPECT_THAT(message("<html>"), HasSubstr("a web page"));
  EXPECT_THAT(message("[]"), HasSubstr("an object is needed"));
  EXPECT_THAT(message("{\"model\": {\"vocab\": {\"a\": 0, \"a\": 1}}}"), HasSubstr("twice"));
  EXPECT_THAT(message(std::string(1000, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(message(""), HasSubstr("neither tokenizer.json nor tokenizer.model"));
}

TEST(TokenizerRefusalTest, TextThatIsNotUtf8) {
  const auto tokenizer = testing::Load(testing::SmallTokenizer());
  ASSERT_TRUE(tokenizer.ok());
  std::vector<int32_t> ids = {1};
  const absl::Status status = (*tokenizer)->Encode("abc\xE6\x97", ids);
  EXPECT_EQ(ReasonOf(status), reason::kDataInvalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("byte 3 of the text (0xE6)"));
  EXPECT_EQ(ids, std::vector<int32_t>{1});
}

}  // namespace
}  // namespace penstock
