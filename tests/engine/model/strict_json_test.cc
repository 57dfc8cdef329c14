#include "engine/model/strict_json.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<nlohmann::json> Parse(const std::string& text) {
  return ParseStrictJson(text, "file.json", {.max_bytes = 4096, .max_depth = 8},
                         reason::kModelInvalid);
}

std::string MessageOf(const std::string& text) {
  const absl::StatusOr<nlohmann::json> result = Parse(text);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(ReasonOf(result.status()), reason::kModelInvalid);
  return std::string(result.status().message());
}

TEST(StrictJsonTest, BuildsTheValueThatTheDefaultParserBuilds) {
  for (const std::string text :
       {R"({"a": [1, -2, 3.5, {"b": null}], "c": {"d": [[], {}], "e": "x"}, "f": true})", "[]", "3",
        R"("text")", R"([{"a": 1}, {"a": 2}])", " { } \n"}) {
    const absl::StatusOr<nlohmann::json> value = Parse(text);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(*value, nlohmann::json::parse(text));
  }
}

TEST(StrictJsonTest, RefusesAKeyThatAppearsTwice) {
  EXPECT_THAT(MessageOf(R"({"a": {"b": 1, "c": 2, "b": 1}})"),
              HasSubstr("key \"b\" appears twice"));
}

TEST(StrictJsonTest, RefusesDeepNesting) {
  EXPECT_TRUE(Parse(std::string(8, '[') + std::string(8, ']')).ok());
  EXPECT_THAT(MessageOf(std::string(9, '[') + std::string(9, ']')), HasSubstr("8 levels"));
  EXPECT_THAT(MessageOf(std::string(2000, '[')), HasSubstr("8 levels"));
}

TEST(StrictJsonTest, RefusesTextBeyondTheLimit) {
  EXPECT_THAT(MessageOf(std::string(4097, ' ')), HasSubstr("4097 bytes"));
}

TEST(StrictJsonTest, SaysWhereTheTextIsBroken) {
  EXPECT_THAT(MessageOf(R"({"a": )"), HasSubstr("file.json is not valid JSON: at byte"));
  EXPECT_FALSE(Parse(R"({"a": 1} x)").ok());
  EXPECT_FALSE(Parse("{\"a\": \"\xff\"}").ok());
  EXPECT_FALSE(Parse("{\"a\": NaN}").ok());
  EXPECT_FALSE(Parse("{\"a\": 1e999}").ok());
}

TEST(StrictJsonTest, NamesWhatTheFileReallyIs) {
  EXPECT_THAT(MessageOf(""), HasSubstr("empty file"));
  EXPECT_THAT(MessageOf("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n"),
              HasSubstr("git lfs pull"));
  EXPECT_THAT(MessageOf("\n <!DOCTYPE html><html></html>"), HasSubstr("web page"));
  EXPECT_THAT(MessageOf("PK\x03\x04zip"), HasSubstr("zip archive"));
  EXPECT_THAT(MessageOf("\x80\x02}q"), HasSubstr("pickle"));
}

std::optional<JsonProblem> ParseOrdered(const std::string& text, nlohmann::ordered_json& value) {
  return ParseOrderedJson(
      text, {.max_bytes = 4096, .max_depth = 8, .max_values = 20, .max_object_keys = 5}, value);
}

TEST(StrictJsonTest, OrderedKeepsTheOrderOfKeys) {
  nlohmann::ordered_json value;
  const std::string text = R"({"z":1,"a":{"y":[1.5,null],"b":true}})";
  ASSERT_FALSE(ParseOrdered(text, value));
  EXPECT_EQ(value.dump(), text);
}

TEST(StrictJsonTest, OrderedSaysAtWhichByte) {
  nlohmann::ordered_json value;
  const std::vector<std::pair<std::string, int64_t>> broken = {
      {R"({"a": x})", 6}, {R"({"a": )", 6}, {"", 0}, {"{\"a\": \"\xff\"}", 7}, {R"([1] 2)", 4}};
  for (const auto& [text, offset] : broken) {
    const auto problem = ParseOrdered(text, value);
    ASSERT_TRUE(problem) << text;
    EXPECT_EQ(problem->offset, offset) << text << ": " << problem->what;
  }
}

TEST(StrictJsonTest, OrderedHasBounds) {
  nlohmann::ordered_json value;
  EXPECT_FALSE(ParseOrdered(R"({"a":1,"b":2,"c":3,"d":4,"e":5})", value));
  EXPECT_THAT(ParseOrdered(R"({"a":1,"b":2,"c":3,"d":4,"e":5,"f":6})", value)->what,
              HasSubstr("more than 5 keys"));
  EXPECT_FALSE(ParseOrdered("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19]", value));
  EXPECT_THAT(ParseOrdered("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]", value)->what,
              HasSubstr("more than 20 values"));
  EXPECT_THAT(ParseOrdered(R"({"a":1,"a":2})", value)->what, HasSubstr("appears twice"));
  EXPECT_THAT(ParseOrdered(std::string(9, '['), value)->what, HasSubstr("8 levels"));
  EXPECT_THAT(ParseOrdered(std::string(4097, ' '), value)->what, HasSubstr("4097 bytes"));
}

}  // namespace
}  // namespace penstock
