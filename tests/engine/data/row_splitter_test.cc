#include "engine/data/row_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/data/data_test_util.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Row {
  std::string text;
  int64_t line;
  int64_t column;
  friend bool operator==(const Row&, const Row&) = default;
};

class RowSplitterTest : public testing::Test {
 protected:
  absl::Status Split(const std::string& content, FileKind kind, int64_t max_row_bytes = 1 << 20) {
    rows_.clear();
    InputFile file = Must(InputFile::Open(dir_.Write("rows", content), nullptr));
    const auto splitter = RowSplitter::Create(file, kind, max_row_bytes);
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const std::optional<RawRow> row, splitter->Next());
      if (!row) return absl::OkStatus();
      rows_.push_back({std::string(row->text), row->line, row->column});
    }
  }
  std::vector<std::string> Texts() const {
    std::vector<std::string> texts;
    for (const Row& row : rows_) texts.push_back(row.text);
    return texts;
  }
  std::string Message(const std::string& content, FileKind kind, int64_t max_row_bytes = 1 << 20) {
    const absl::Status status = Split(content, kind, max_row_bytes);
    EXPECT_EQ(ReasonOf(status), reason::kDataInvalid) << content;
    return std::string(status.message());
  }

  TempDir dir_;
  std::vector<Row> rows_;
};

TEST_F(RowSplitterTest, LinesOfEverySpelling) {
  for (const char* content :
       {"{1}\n{2}", "{1}\r\n\r\n{2}\r\n", "\xef\xbb\xbf{1}\n \t\n{2}\n", "\n\n{1}\n{2}\n\n"}) {
    ASSERT_TRUE(Split(content, FileKind::kJsonLines).ok());
    EXPECT_THAT(Texts(), ElementsAre("{1}", "{2}")) << content;
  }
  EXPECT_EQ(rows_[1].line, 4);
}

TEST_F(RowSplitterTest, AnArrayIsCutAtItsOwnCommas) {
  ASSERT_TRUE(
      Split("\n[ {\"a\": [1, {\"b\": 2}]},\n  \"x,]\\\"}\\\\\", 3\n]\n ", FileKind::kJsonArray)
          .ok());
  EXPECT_THAT(rows_, ElementsAre(Row{"{\"a\": [1, {\"b\": 2}]}", 2, 3},
                                 Row{"\"x,]\\\"}\\\\\"", 3, 3}, Row{"3\n", 3, 15}));
  ASSERT_TRUE(Split(" [ ] ", FileKind::kJsonArray).ok());
  EXPECT_THAT(rows_, IsEmpty());
}

TEST_F(RowSplitterTest, ACommaTooManyIsAnEmptyRow) {
  ASSERT_TRUE(Split("[1,,2,]", FileKind::kJsonArray).ok());
  EXPECT_THAT(Texts(), ElementsAre("1", "", "2", ""));
}

TEST_F(RowSplitterTest, ABrokenArrayEndsTheReading) {
  EXPECT_THAT(Message("{}", FileKind::kJsonArray), HasSubstr("rows:1: found '{', expected '['"));
  EXPECT_THAT(Message("", FileKind::kJsonArray), HasSubstr("found the end of the file"));
  EXPECT_THAT(Message("[1,\n{\"a\": \"half", FileKind::kJsonArray),
              HasSubstr("rows:2: the file ends inside the row that begins here"));
  EXPECT_THAT(Message("[1", FileKind::kJsonArray), HasSubstr("the file ends inside"));
  EXPECT_THAT(Message("[1,", FileKind::kJsonArray), HasSubstr("the file ends inside"));
  EXPECT_THAT(Message("[1]\n[2]", FileKind::kJsonArray),
              HasSubstr("rows:2: found '[' after the array of rows"));
}

TEST_F(RowSplitterTest, CsvRecordsMayHoldLineEnds) {
  ASSERT_TRUE(Split("a,b\r\n\"x\r\n\"\"y\n\",2\r\n\r\n\"\"\n3,\"4\"", FileKind::kCsv).ok());
  EXPECT_THAT(rows_, ElementsAre(Row{"a,b", 1, 1}, Row{"\"x\r\n\"\"y\n\",2", 2, 1},
                                 Row{"\"\"", 6, 1}, Row{"3,\"4\"", 7, 1}));
  ASSERT_TRUE(Split("a\t\"b\n\"\tc\n1\n", FileKind::kTsv).ok());
  EXPECT_THAT(Texts(), ElementsAre("a\t\"b\n\"\tc", "1"));
  ASSERT_TRUE(Split("", FileKind::kCsv).ok());
  EXPECT_THAT(rows_, IsEmpty());
}

TEST_F(RowSplitterTest, AStrayQuoteCostsItsLineOnly) {
  ASSERT_TRUE(Split("a\nx\"y\n\"b\" c \"d\nz\n", FileKind::kCsv).ok());
  EXPECT_THAT(Texts(), ElementsAre("a", "x\"y", "\"b\" c \"d", "z"));
}

TEST_F(RowSplitterTest, ACsvFileThatEndsInQuotesIsRefused) {
  EXPECT_THAT(Message("a\n1\n\"2\n3\n", FileKind::kCsv),
              HasSubstr("rows:3: the file ends inside a quoted field"));
}

TEST_F(RowSplitterTest, RowsAreBounded) {
  for (const auto& [content, kind] :
       std::vector<std::pair<std::string, FileKind>>{{"1234\n12345", FileKind::kJsonLines},
                                                     {"[1234,\n12345]", FileKind::kJsonArray},
                                                     {"1234\n12345", FileKind::kCsv}}) {
    EXPECT_TRUE(Split(content, kind, 5).ok());
    EXPECT_THAT(Message(content, kind, 4), HasSubstr("rows:2:"));
  }
}

TEST_F(RowSplitterTest, RowsLongerThanOneReadStayWhole) {
  const std::string text(3 * kReadBytes, 'x');
  ASSERT_TRUE(Split("[\"" + text + "\",1]", FileKind::kJsonArray, 1 << 23).ok());
  EXPECT_TRUE(rows_[0].text == "\"" + text + "\"");
  ASSERT_TRUE(Split("a,b\n\"" + text + "\",1\n", FileKind::kCsv, 1 << 23).ok());
  EXPECT_TRUE(rows_[1].text == "\"" + text + "\",1");
}

TEST_F(RowSplitterTest, KindsAreFoundByNameAndFirstCharacter) {
  const auto kind_of = [&](const std::string& name, const std::string& content) {
    const InputFile file = Must(InputFile::Open(dir_.Write(name, content), nullptr));
    return DetectFileKind(file);
  };
  EXPECT_EQ(*kind_of("a.csv", "[x"), FileKind::kCsv);
  EXPECT_EQ(*kind_of("a.TSV", "x"), FileKind::kTsv);
  EXPECT_EQ(*kind_of("a.json", "\xef\xbb\xbf \n [{}]"), FileKind::kJsonArray);
  EXPECT_EQ(*kind_of("a.json", "{}\n{}"), FileKind::kJsonLines);
  EXPECT_EQ(*kind_of("a.jsonl", ""), FileKind::kJsonLines);
  const absl::Status status = kind_of("a.txt", "\n\nhello").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("a.txt:3: found 'h', expected '{' or '['"));
}

}  // namespace
}  // namespace penstock
