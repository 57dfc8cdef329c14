#include "engine/data/token_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TokenRow Parsed(const std::string& line) {
  TokenRow row;
  const std::optional<RowError> error = ParseTokenRow(line, row);
  EXPECT_FALSE(error.has_value()) << line << ": " << error->column << ": " << error->message;
  return row;
}

TEST(ParseTokenRowTest, TakesArraysAndObjects) {
  EXPECT_THAT(Parsed("[1,2,3]").ids, ElementsAre(1, 2, 3));
  EXPECT_THAT(Parsed(" [ 1 ,\t2 ] ").ids, ElementsAre(1, 2));
  EXPECT_THAT(Parsed(R"({"ids": [0, 2147483647]})").ids,
              ElementsAre(0, std::numeric_limits<int32_t>::max()));
  EXPECT_THAT(Parsed(R"({"ids":[7]})").trained, IsEmpty());
}

TEST(ParseTokenRowTest, TakesLabelsBeforeOrAfterTheIds) {
  for (const char* line :
       {R"({"ids":[5,6,7],"labels":[-100,6,7]})", R"({"labels":[-100,6,7], "ids":[5,6,7]})"}) {
    const TokenRow row = Parsed(line);
    EXPECT_THAT(row.ids, ElementsAre(5, 6, 7));
    EXPECT_THAT(row.trained, ElementsAre(0, 1, 1));
  }
}

TEST(ParseTokenRowTest, ForgetsTheRowBefore) {
  TokenRow row;
  ASSERT_FALSE(ParseTokenRow(R"({"ids":[5,6],"labels":[-100,6]})", row).has_value());
  ASSERT_FALSE(ParseTokenRow("[9]", row).has_value());
  EXPECT_THAT(row.ids, ElementsAre(9));
  EXPECT_THAT(row.trained, IsEmpty());
}

struct BadRow {
  std::string line;
  int64_t column;
  std::string message;
};

TEST(ParseTokenRowTest, RefusesEverythingElseWithTheColumn) {
  const std::vector<BadRow> rows = {
      {"", 1, "end of the line"},
      {"hello", 1, "'h'"},
      {"[1,2", 5, "the end of the line"},
      {"[1,", 4, "expected an integer"},
      {"[1 2]", 4, "'2'"},
      {"[1,2]x", 6, "after the row"},
      {"[1,2][3]", 6, "after the row"},
      {"[]", 1, "no token ids"},
      {R"({"ids":[]})", 1, "no token ids"},
      {R"({"labels":[1]})", 1, R"(no "ids")"},
      {"[1.0]", 2, "fraction or exponent"},
      {"[1e3]", 2, "fraction or exponent"},
      {"[01]", 2, "leading zero"},
      {"[-1]", 2, "outside 0..2147483647"},
      {"[-100]", 2, "outside"},
      {"[2147483648]", 2, "token id 2147483648"},
      {"[99999999999999999999999999]", 2, "token id 999999999999999999999999 "},
      {"[\"1\"]", 2, "expected an integer"},
      {"[null]", 2, "expected an integer"},
      {"[[1]]", 2, "expected an integer"},
      {R"({"ids":[1],"ids":[1]})", 12, "twice"},
      {R"({"input_ids":[1]})", 2, R"(unknown key "input_ids")"},
      {R"({"ids":[1],"label":[1]})", 12, R"(unknown key "label")"},
      {R"({"ids":[1],})", 12, "'}'"},
      {R"({"ids")", 7, "expected ':'"},
      {R"({"ids)", 3, "closing quote"},
      {R"({"ids":[1,2],"labels":[1]})", 23, "1 labels for 2 ids"},
      {R"({"ids":[1,2],"labels":[1,3]})", 23, "label 1 (from 0) is 3"},
      {R"({"ids":[1,2],"labels":[2,-100]})", 23, "not shifted"},
      {R"({"ids":[1],"labels":[-99]})", 22, "is not -100"},
      {std::string("[1,\0]", 5), 4, "a NUL byte"},
      {std::string("[1]\0", 4), 4, "a NUL byte"},
      {std::string("\0", 1), 1, "a NUL byte"},
      {"[1,\xff]", 4, "byte 0xff"},
  };
  for (const BadRow& bad : rows) {
    TokenRow row;
    const std::optional<RowError> error = ParseTokenRow(bad.line, row);
    ASSERT_TRUE(error.has_value()) << bad.line;
    EXPECT_EQ(error->column, bad.column) << bad.line << ": " << error->message;
    EXPECT_THAT(error->message, HasSubstr(bad.message)) << bad.line;
  }
}

TEST(ParseTokenRowTest, EveryPrefixOfARowIsRefused) {
  const std::string line = R"({"ids": [10, 20], "labels": [-100, 20]})";
  TokenRow row;
  ASSERT_FALSE(ParseTokenRow(line, row).has_value());
  for (size_t length = 0; length < line.size(); ++length) {
    EXPECT_TRUE(ParseTokenRow(line.substr(0, length), row).has_value()) << length;
  }
}

TEST(ParseTokenRowTest, DeepNestingIsNoRecursion) {
  TokenRow row;
  EXPECT_TRUE(ParseTokenRow(std::string(1 << 20, '['), row).has_value());
}

TEST(BeginsJsonArrayOfRowsTest, TellsAnArrayOfRowsFromARow) {
  for (const char* line : {"[", " [ ", "[{\"ids\":[1]},", "[ [1],[2]]"}) {
    EXPECT_TRUE(BeginsJsonArrayOfRows(line)) << line;
  }
  for (const char* line : {"", "[1,2]", "[]", "{\"ids\":[1]}", "x["}) {
    EXPECT_FALSE(BeginsJsonArrayOfRows(line)) << line;
  }
}

}  // namespace
}  // namespace penstock
