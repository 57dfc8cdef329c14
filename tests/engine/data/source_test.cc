#include "engine/data/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/data/line_reader.h"
#include "tests/engine/data/data_test_util.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kBom = "\xef\xbb\xbf";
const std::vector<std::string> kRows = {"[1,2,3]",   R"({"ids":[4,5]})", "[6]",
                                        "[7, 8, 9]", "[10,11]",          "[70001,65536]"};
const std::vector<std::vector<int32_t>> kIds = {{1, 2, 3}, {4, 5},   {6},
                                                {7, 8, 9}, {10, 11}, {70001, 65536}};

std::string Join(const std::vector<std::string>& rows, const std::string& end) {
  std::string text;
  for (const std::string& row : rows) text += row + end;
  return text;
}

class SourceTest : public testing::Test {
 protected:
  absl::Status Read(const DataSource& source) {
    sink_ = Collector();
    return ReadDocuments(source, {.encoder = &ByteEncoder()}, sink_).status();
  }
  absl::Status ReadJsonl(const std::string& content) {
    return Read(JsonlSource({dir_.Write("rows.jsonl", content)}));
  }
  absl::Status ReadText(const std::string& content, TextDocuments documents) {
    return Read({.format = DataFormat::kText,
                 .paths = {dir_.Write("text.txt", content)},
                 .text_documents = documents});
  }
  // The bytes of document d without its end of document.
  std::string Text(size_t d) const {
    const std::vector<int32_t>& ids = sink_.documents[d].ids;
    EXPECT_EQ(ids.back(), ByteTokenizer::kEndOfDocument);
    return std::string(ids.begin(), ids.end() - 1);
  }

  TempDir dir_;
  Collector sink_;
};

// BC-17
TEST_F(SourceTest, SameRowsInEverySpellingOfALine) {
  std::string no_final_newline = Join(kRows, "\n");
  no_final_newline.pop_back();
  std::string crlf_no_final_newline = Join(kRows, "\r\n");
  crlf_no_final_newline.resize(crlf_no_final_newline.size() - 2);
  const std::vector<std::string> files = {
      Join(kRows, "\n"),     kBom + Join(kRows, "\n"),     Join(kRows, "\n\n \t\n"),
      Join(kRows, "\r\n"),   Join(kRows, "\r\n\r\n"),      no_final_newline,
      crlf_no_final_newline, kBom + crlf_no_final_newline,
  };
  for (const std::string& file : files) {
    ASSERT_TRUE(ReadJsonl(file).ok()) << file;
    EXPECT_EQ(sink_.Ids(), kIds) << file;
    EXPECT_THAT(sink_.notes, IsEmpty()) << file;
  }
}

TEST_F(SourceTest, NulLineIsReportedAndTheRowsAreKept) {
  std::string file = Join({kRows[0], kRows[1]}, "\n") + std::string(512, '\0') + "\n" +
                     Join({kRows.begin() + 2, kRows.end()}, "\n");
  ASSERT_TRUE(ReadJsonl(file).ok());
  EXPECT_EQ(sink_.Ids(), kIds);
  ASSERT_EQ(sink_.notes.size(), 1u);
  EXPECT_EQ(sink_.notes[0].location.line, 3);
  EXPECT_EQ(sink_.documents[2].location.line, 4);
}

TEST_F(SourceTest, NulBytesBesideARowAreABadRow) {
  const absl::Status status = ReadJsonl(std::string("[1,2]\n[3]\0\0\n", 12));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rows.jsonl:2:4: found a NUL byte"));
}

TEST_F(SourceTest, JsonArrayIsRefusedByName) {
  for (const std::string& file : {"[" + kRows[0] + ",\n" + kRows[1] + "]\n",
                                  "[\n" + kRows[0] + "\n]\n", std::string("[{\"ids\":[1]}]")}) {
    for (const BadRowPolicy policy : {BadRowPolicy::kRefuse, BadRowPolicy::kSkip}) {
      DataSource source = JsonlSource({dir_.Write("rows.jsonl", file)});
      source.on_bad_row = policy;
      const absl::Status status = Read(source);
      EXPECT_THAT(std::string(status.message()), HasSubstr("JSON array"));
      EXPECT_EQ(MetadataOf(status)["detected_format"], "JSON array");
    }
  }
}

TEST_F(SourceTest, ForeignFormatsAreRefusedByName) {
  struct Case {
    std::string content, name, way_out;
  };
  const std::vector<Case> files = {
      {std::string("\x1f\x8b\x08\x00", 4), "gzip", "gunzip"},
      {std::string("\x28\xb5\x2f\xfd\x00", 5), "Zstandard", "unzstd"},
      {std::string("PK\x03\x04rest", 8), "zip", "unpack it"},
      {"PAR1 and more", "Parquet", "pandas.read_parquet"},
      {std::string("ARROW1\0\0", 8), "Arrow (Feather)", "pandas.read_feather"},
      {std::string("\xff\xfe[\0", 4), "UTF-16 (little-endian) text", "iconv"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer",
       "git lfs"}};
  for (const auto& [content, name, way_out] : files) {
    for (const absl::Status& status :
         {ReadJsonl(content), ReadText(content, TextDocuments::kWholeFile)}) {
      EXPECT_EQ(ReasonOf(status), reason::kDataInvalid);
      EXPECT_EQ(MetadataOf(status)["detected_format"], name);
      EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(name), HasSubstr(way_out)));
    }
  }
}

TEST_F(SourceTest, BrokenRowIsRefusedWithFileLineAndColumn) {
  std::vector<std::string> rows = kRows;
  rows[3] = "[7, 8";
  const absl::Status status = ReadJsonl(Join(rows, "\n"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), reason::kDataInvalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rows.jsonl:4:6: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("on_bad_row"));
  EXPECT_EQ(MetadataOf(status)["line"], "4");
  EXPECT_EQ(MetadataOf(status)["column"], "6");
}

TEST_F(SourceTest, SkippingReportsEveryBadRowAndUsesTheOthers) {
  std::vector<std::string> rows = kRows;
  rows[3] = "[7, 8";
  rows[5] = "{}";
  DataSource source = JsonlSource({dir_.Write("rows.jsonl", Join(rows, "\n"))});
  source.on_bad_row = BadRowPolicy::kSkip;
  ASSERT_TRUE(Read(source).ok());
  EXPECT_EQ(sink_.documents.size() + sink_.notes.size(), rows.size());
  ASSERT_EQ(sink_.notes.size(), 2u);
  EXPECT_EQ(sink_.notes[0].location.line, 4);
  EXPECT_EQ(sink_.notes[0].column, 6);
  EXPECT_EQ(sink_.notes[1].location.line, 6);
}

TEST_F(SourceTest, SkippingHasACapOverAllFiles) {
  DataSource source = JsonlSource({dir_.Write("a", "[1]\nx\nx\n"), dir_.Write("b", "x\n[2]\n")});
  source.on_bad_row = BadRowPolicy::kSkip;
  source.max_bad_rows = 3;
  EXPECT_TRUE(Read(source).ok());
  source.max_bad_rows = 2;
  const absl::Status status = Read(source);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/b:1:1: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_bad_rows allows 2"));
}

TEST_F(SourceTest, LabelsReachTheSink) {
  ASSERT_TRUE(ReadJsonl("{\"ids\":[1,2],\"labels\":[-100,2]}\n[3]\n").ok());
  EXPECT_THAT(sink_.documents[0].trained, ElementsAre(0, 1));
  EXPECT_THAT(sink_.documents[1].trained, IsEmpty());
}

TEST_F(SourceTest, WholeFileIsOneDocumentByteForByte) {
  std::string text = "two\r\n\r\nparagraphs \xff\xfe and a NUL: ";
  text.push_back('\0');
  ASSERT_TRUE(ReadText(kBom + text, TextDocuments::kWholeFile).ok());
  ASSERT_EQ(sink_.documents.size(), 1u);
  EXPECT_EQ(Text(0), text);
}

TEST_F(SourceTest, BlankLinesSeparateDocuments) {
  ASSERT_TRUE(ReadText(kBom + "\n\na\nb\r\n \t\nc\n\n\nd", TextDocuments::kBlankLine).ok());
  ASSERT_EQ(sink_.documents.size(), 3u);
  EXPECT_EQ(Text(0), "a\nb");
  EXPECT_EQ(Text(1), "c");
  EXPECT_EQ(Text(2), "d");
  EXPECT_EQ(sink_.documents[0].location.line, 3);
  EXPECT_EQ(sink_.documents[1].location.line, 6);
  EXPECT_EQ(sink_.documents[2].location.line, 9);
}

TEST_F(SourceTest, FilesWithoutDocumentsAreReported) {
  for (const std::string& content : {std::string(), kBom}) {
    ASSERT_TRUE(ReadText(content, TextDocuments::kWholeFile).ok());
    EXPECT_THAT(sink_.documents, IsEmpty());
    ASSERT_EQ(sink_.notes.size(), 1u);
    EXPECT_THAT(sink_.notes[0].text, HasSubstr("no documents"));
  }
  ASSERT_TRUE(ReadText(" \n\n", TextDocuments::kBlankLine).ok());
  EXPECT_EQ(sink_.notes.size(), 1u);
  ASSERT_TRUE(ReadJsonl("\n").ok());
  EXPECT_EQ(sink_.notes.size(), 1u);
}

TEST_F(SourceTest, HashesAreThoseOfTheBytes) {
  const DataSource source = JsonlSource({dir_.Write("a", kBom + "[1]\n"), dir_.Write("b", "[2]")});
  const auto hashes = Must(ReadDocuments(source, {.encoder = &ByteEncoder()}, sink_));
  EXPECT_EQ(hashes, Must(HashFiles(source.paths, nullptr)));
  EXPECT_NE(hashes[0], hashes[1]);
  const auto without_mark = Must(HashFiles({dir_.Write("c", "[1]\n")}, nullptr));
  EXPECT_NE(hashes[0], without_mark[0]);
}

TEST_F(SourceTest, OnlyRegularFilesAreOpened) {
  const std::string fifo = dir_.path() + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, dir_.path(), std::string("/dev/zero")}) {
    const absl::Status status = Read(JsonlSource({path}));
    EXPECT_EQ(ReasonOf(status), reason::kDataInvalid) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("regular file is wanted"));
  }
  const absl::Status missing = Read(JsonlSource({dir_.path() + "/none"}));
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/none"));
}

TEST_F(SourceTest, SourcesWithoutSenseAreRefused) {
  EXPECT_EQ(ReasonOf(Validate(DataSource{})), reason::kDataInvalid);
  EXPECT_EQ(ReasonOf(Validate(JsonlSource({""}))), reason::kDataInvalid);
  DataSource source = JsonlSource({"a"});
  EXPECT_TRUE(Validate(source).ok());
  source.max_bad_rows = -1;
  EXPECT_EQ(ReasonOf(Validate(source)), reason::kDataInvalid);
}

TEST_F(SourceTest, AProgressThatFailsEndsTheReading) {
  const DataSource source = JsonlSource({dir_.Write("a", "[1]\n")});
  const auto cancel = [](int64_t) { return absl::CancelledError("enough"); };
  EXPECT_EQ(ReadDocuments(source, {.encoder = &ByteEncoder(), .progress = cancel}, sink_).status(),
            absl::CancelledError("enough"));
}

// Remembers how the text was cut.
class RecordingTokenizer final : public Tokenizer {
 public:
  absl::Status Encode(std::string_view text, std::vector<int32_t>& ids) const override {
    pieces.emplace_back(text);
    ids.push_back(1);
    return absl::OkStatus();
  }
  absl::Status EncodeWithSpans(std::string_view, const EncodeOptions&,
                               Encoding& encoding) const override {
    encoding = {.ids = {1}, .spans = {{0, 1}}};
    return absl::OkStatus();
  }
  int64_t vocab_size() const override { return 2; }
  std::string fingerprint() const override { return "recording"; }
  std::optional<int32_t> end_of_document() const override { return std::nullopt; }
  mutable std::vector<std::string> pieces;
};

std::vector<std::string> PiecesOf(const TempDir& dir, const std::string& text) {
  RecordingTokenizer tokenizer;
  Collector sink;
  const DataSource source = {.format = DataFormat::kText, .paths = {dir.Write("long", text)}};
  const ExampleEncoder encoder = Must(ExampleEncoder::Create({.tokenizer = &tokenizer}));
  Must(ReadDocuments(source, {.encoder = &encoder}, sink));
  EXPECT_EQ(sink.documents.size(), 1u);
  std::string joined;
  for (const std::string& piece : tokenizer.pieces) {
    EXPECT_LE(static_cast<int64_t>(piece.size()), kEncodePieceBytes);
    joined += piece;
  }
  EXPECT_TRUE(joined == text);
  return tokenizer.pieces;
}

TEST_F(SourceTest, LongTextIsCutWhereItHurtsLeast) {
  const size_t piece = kEncodePieceBytes;
  std::string lines = std::string(piece - 10, 'a') + "\n" + std::string(piece, 'b');
  EXPECT_EQ(PiecesOf(dir_, lines)[0].size(), piece - 9);
  std::string words = std::string(piece - 10, 'a') + " " + std::string(piece, 'b');
  EXPECT_EQ(PiecesOf(dir_, words)[0].size(), piece - 9);
  std::string code_points;  // of 3 bytes: one is in the way of the cut
  while (code_points.size() < 2 * piece) code_points += "\xe2\x82\xac";
  for (const std::string& part : PiecesOf(dir_, code_points)) EXPECT_EQ(part.size() % 3, 0u);
  std::string no_text(2 * piece + 5, '\x80');
  EXPECT_EQ(PiecesOf(dir_, no_text).size(), 3u);
  EXPECT_EQ(PiecesOf(dir_, std::string(piece, 'a')).size(), 1u);
}

TEST_F(SourceTest, LinesAreBounded) {
  const std::string path = dir_.Write("lines", "12345678\r\n1234\n123456789");
  InputFile file = Must(InputFile::Open(path, nullptr));
  LineReader lines(file, 9);
  EXPECT_EQ(Must(lines.Next()), "12345678");
  EXPECT_EQ(Must(lines.Next()), "1234");
  EXPECT_EQ(Must(lines.Next()), "123456789");
  EXPECT_EQ(Must(lines.Next()), std::nullopt);
  InputFile again = Must(InputFile::Open(path, nullptr));
  LineReader narrow(again, 8);
  const absl::Status status = narrow.Next().status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("lines:1: the line has more than 8 B"));
}

TEST_F(SourceTest, LinesLongerThanOneReadStayWhole) {
  std::string row = "[";
  std::vector<int32_t> ids;
  while (row.size() < 3 * static_cast<size_t>(kReadBytes)) {
    ids.push_back(static_cast<int32_t>(ids.size()));
    row += (ids.size() > 1 ? "," : "") + std::to_string(ids.back());
  }
  ASSERT_TRUE(ReadJsonl("[1]\n" + row + "]\n[2]\n").ok());
  ASSERT_EQ(sink_.documents.size(), 3u);
  EXPECT_EQ(sink_.documents[1].ids, ids);
}

}  // namespace
}  // namespace penstock
