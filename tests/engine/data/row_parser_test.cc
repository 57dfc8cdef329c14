#include "engine/data/row_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace penstock {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Fields(const std::string& record, char separator = ',') {
  std::vector<std::string> fields;
  const auto error = ParseCsvRecord(record, separator, fields);
  EXPECT_FALSE(error) << error->message;
  return fields;
}

RowError CsvError(const std::string& record) {
  std::vector<std::string> fields;
  const auto error = ParseCsvRecord(record, ',', fields);
  EXPECT_TRUE(error) << record;
  return error.value_or(RowError{});
}

TEST(CsvRecordTest, FieldsAsRfc4180HasThem) {
  EXPECT_THAT(Fields("a,b"), ElementsAre("a", "b"));
  EXPECT_THAT(Fields(""), ElementsAre(""));
  EXPECT_THAT(Fields(",,"), ElementsAre("", "", ""));
  EXPECT_THAT(Fields("\"\",\"a,b\",\"say \"\"hi\"\"\",\"two\r\nlines\""),
              ElementsAre("", "a,b", "say \"hi\"", "two\r\nlines"));
  EXPECT_THAT(Fields(" spaces , stay "), ElementsAre(" spaces ", " stay "));
  EXPECT_THAT(Fields("a,b\t\"c,\td\"", '\t').size(), 2u + 0u);
}

TEST(CsvRecordTest, ErrorsNameTheirPlace) {
  EXPECT_THAT(CsvError("a,b\"c").message, HasSubstr("a quote inside a field"));
  EXPECT_EQ(CsvError("a,b\"c").column, 4);
  EXPECT_THAT(CsvError("\"a\"b").message, HasSubstr("after the closing quote"));
  EXPECT_EQ(CsvError("\"a\"b").column, 4);
  EXPECT_THAT(CsvError("\"a").message, HasSubstr("without its closing quote"));
  const RowError bad = CsvError("\"first\nsec\xE9nd\"");
  EXPECT_THAT(bad.message, HasSubstr("byte 0xe9 is not UTF-8"));
  EXPECT_EQ(bad.line, 1);
  EXPECT_EQ(bad.column, 4);
  EXPECT_THAT(CsvError(std::string("a\0", 2)).message, HasSubstr("NUL"));
  EXPECT_THAT(CsvError(std::string(kMaxColumns, ',')).message, HasSubstr("more than 4096 fields"));
}

TEST(RowParserTest, CsvRowsAreObjectsOfStrings) {
  RowParser parser;
  ASSERT_FALSE(RowParser::Create(FileKind::kCsv, ",z,a", parser));  // pandas writes its index so
  ordered_json row;
  ASSERT_FALSE(parser.Parse("0,1,\"x\"", row));
  EXPECT_EQ(row.dump(), R"({"":"0","z":"1","a":"x"})");
  EXPECT_THAT(parser.Parse("0,1", row)->message, HasSubstr("2 fields, expected 3"));
  EXPECT_THAT(parser.Parse("0,1,2,3", row)->message, HasSubstr("4 fields, expected 3"));
}

TEST(RowParserTest, AHeaderWithoutSenseIsRefused) {
  RowParser parser;
  EXPECT_THAT(RowParser::Create(FileKind::kCsv, "a,b,a", parser)->message,
              HasSubstr("two columns are named \"a\""));
  EXPECT_THAT(RowParser::Create(FileKind::kCsv, ",", parser)->message, HasSubstr("named \"\""));
  EXPECT_TRUE(RowParser::Create(FileKind::kCsv, "a,\"b", parser));
}

RowError JsonError(const std::string& text) {
  RowParser parser;
  ordered_json row;
  const auto error = parser.Parse(text, row);
  EXPECT_TRUE(error) << text;
  return error.value_or(RowError{});
}

TEST(RowParserTest, JsonRowsAreObjectsInTheirOrder) {
  RowParser parser;
  ordered_json row;
  const std::string text = R"({"z":[1,{"y":null,"b":2.5}],"a":"é\u0000"})";
  ASSERT_FALSE(parser.Parse(text, row));
  EXPECT_EQ(row.dump(), text);
}

TEST(RowParserTest, WhatIsNoObjectIsABadRow) {
  EXPECT_THAT(JsonError("[1]").message, HasSubstr("found a JSON array, expected an object"));
  EXPECT_THAT(JsonError("3").message, HasSubstr("found a JSON number"));
  EXPECT_THAT(JsonError("").message, HasSubstr("empty row"));
}

TEST(RowParserTest, BrokenJsonIsNamedWithItsPlace) {
  const RowError cut = JsonError("{\"a\": \"half");
  EXPECT_THAT(cut.message, HasSubstr("not valid JSON"));
  EXPECT_EQ(cut.column, 12);
  const RowError second_line = JsonError("{\"a\": 1,\n  b: 2}");
  EXPECT_EQ(second_line.line, 1);
  EXPECT_EQ(second_line.column, 3);
  EXPECT_THAT(JsonError("{\"a\": \"\xff\"}").message, HasSubstr("UTF-8"));
  EXPECT_THAT(JsonError("{\"a\": \"\\ud800\"}").message, HasSubstr("surrogate"));
  EXPECT_THAT(JsonError("{\"a\":1,\"a\":2}").message, HasSubstr("appears twice"));
  EXPECT_THAT(JsonError(std::string(100, '[')).message, HasSubstr("64 levels"));
}

}  // namespace
}  // namespace penstock
