#include "engine/data/row_documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/utf8.h"
#include "engine/data/text_documents.h"
#include "engine/template/builtin_templates.h"
#include "tests/engine/data/data_test_util.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class RowDocumentsTest : public testing::Test {
 protected:
  DataSource Rows(const std::string& name, const std::string& content) {
    return {.format = DataFormat::kRows, .paths = {dir_.Write(name, content)}};
  }
  absl::Status Read(const DataSource& source, int threads = 1) {
    sink_ = Collector();
    const ExampleEncoder encoder = Must(ExampleEncoder::Create(
        {.tokenizer = &tokenizer_, .chat = &chat_, .rules = {.max_tokens = 80}}));
    return ReadDocuments(source, {.encoder = &encoder, .threads = threads}, sink_).status();
  }
  void ExpectRefused(const DataSource& source, const std::string& words) {
    const absl::Status status = Read(source);
    EXPECT_EQ(ReasonOf(status), reason::kDataInvalid) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }
  std::string Text(size_t document) const {
    std::string text;
    for (const int32_t id : sink_.documents[document].ids) {
      text += id < 256 ? static_cast<char>(id) : '$';
    }
    return text;
  }
  std::vector<SourceNote> Notes(NoteKind kind) const {
    std::vector<SourceNote> notes;
    for (const SourceNote& note : sink_.notes) {
      if (note.kind == kind) notes.push_back(note);
    }
    return notes;
  }

  TempDir dir_;
  ByteTokenizer tokenizer_;
  ChatSetup chat_{.chat_template = Must(BuiltInTemplate("chatml")), .options = {}};
  Collector sink_;
};

TEST_F(RowDocumentsTest, TheFormatIsFoundAndReported) {
  ASSERT_TRUE(Read(Rows("a.jsonl", R"({"instruction":"q","output":"a","id":7})")).ok());
  EXPECT_EQ(Text(0), "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n");
  const std::vector<SourceNote> facts = Notes(NoteKind::kFact);
  ASSERT_THAT(facts, SizeIs(2));
  EXPECT_THAT(facts[0].text, AllOf(HasSubstr("format alpaca"), HasSubstr("a.jsonl:1")));
  EXPECT_THAT(facts[1].text, HasSubstr("nothing uses: id"));
}

TEST_F(RowDocumentsTest, EveryKindOfFileHasTheSameRows) {
  const std::string a = R"({"prompt":"q\n1","completion":"a"})",
                    b = R"({"prompt":"r","completion":"b"})";
  for (const auto& [name, content] : std::vector<std::pair<std::string, std::string>>{
           {"rows.jsonl", a + "\n" + b},
           {"rows.json", "[" + a + ",\n " + b + "]"},
           {"rows.csv", "prompt,completion\n\"q\n1\",a\r\nr,b\n"},
           {"rows.tsv", "completion\tprompt\na\t\"q\n1\"\nb\tr"}}) {
    ASSERT_TRUE(Read(Rows(name, content)).ok()) << name;
    ASSERT_THAT(sink_.documents, SizeIs(2)) << name;
    EXPECT_EQ(Text(0), "q\n1a$") << name;
    EXPECT_EQ(Text(1), "rb$") << name;
    EXPECT_THAT(sink_.documents[0].trained, ElementsAre(0, 0, 0, 1, 1)) << name;
  }
}

TEST_F(RowDocumentsTest, BadRowsHaveFileLineColumnAndTheWayOut) {
  const std::string rows =
      "{\"text\":\"ok\"}\n\n{\"text\":\"half\n{\"text\":7}\n{\"text\":\"b\"}\n";
  DataSource source = Rows("rows.jsonl", rows);
  ExpectRefused(source, "rows.jsonl:3:");
  ExpectRefused(source, "on_bad_row");
  source.on_bad_row = BadRowPolicy::kSkip;
  ASSERT_TRUE(Read(source).ok());
  EXPECT_THAT(sink_.documents, SizeIs(2));
  const std::vector<SourceNote> bad = Notes(NoteKind::kBadRow);
  ASSERT_THAT(bad, SizeIs(2));
  EXPECT_EQ(bad[0].location.line, 3);
  EXPECT_EQ(bad[1].location.line, 4);
  EXPECT_THAT(bad[1].text, HasSubstr("text"));
  source.max_bad_rows = 1;
  ExpectRefused(source, "max_bad_rows allows 1");
}

TEST_F(RowDocumentsTest, BrokenUtf8IsABadRowAtItsByte) {
  ExpectRefused(Rows("rows.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\xff\"}\n"), "rows.jsonl:2:11");
}

TEST_F(RowDocumentsTest, WhatIsLeftOutIsCountedAndNamed) {
  const std::string rows = absl::StrCat(R"({"prompt":"q","completion":")", std::string(80, 'x'),
                                        "\"}\n", R"({"prompt":"q","completion":"a"})");
  ASSERT_TRUE(Read(Rows("rows.jsonl", rows)).ok());
  EXPECT_THAT(sink_.documents, SizeIs(1));
  const std::vector<SourceNote> notes = Notes(NoteKind::kTooLong);
  ASSERT_THAT(notes, SizeIs(1));
  EXPECT_EQ(notes[0].location.line, 1);
  EXPECT_THAT(notes[0].text, HasSubstr("82 tokens, 80 are allowed"));
}

TEST_F(RowDocumentsTest, ANamedColumnMustBeInSomeRow) {
  DataSource source = Rows("rows.jsonl", R"({"instruction":"q","output":"a"})");
  FormatSpec format = DefaultFormat(RowFormat::kAlpaca);
  format.columns.query = {"inptu", Column::Need::kNamed};
  source.rows.format = format;
  ExpectRefused(source, "\"inptu\" is named, but no row");
  source.rows.format->columns.query.need = Column::Need::kOptional;
  EXPECT_TRUE(Read(source).ok());
}

TEST_F(RowDocumentsTest, ColumnsThatFitNoFormatOrTwoAreRefused) {
  ExpectRefused(Rows("a.jsonl", R"({"question":"q","answer":"a"})"),
                "no known format has the columns \"question\", \"answer\"");
  ExpectRefused(Rows("b.jsonl", R"({"prompt":"q","completion":"a","text":"t"})"),
                "could be of the formats");
}

TEST_F(RowDocumentsTest, OnlyTheFirstRowsAreUsedIfThatIsAskedFor) {
  DataSource source = {.format = DataFormat::kRows,
                       .paths = {dir_.Write("a.jsonl", "{\"text\":\"1\"}\n{\"text\":\"2\"}\n"),
                                 dir_.Write("b.jsonl", "{\"text\":\"3\"}\nbroken\n")}};
  source.rows.max_rows = 3;
  ASSERT_TRUE(Read(source).ok());
  EXPECT_THAT(sink_.documents, SizeIs(3));
  source.rows.max_rows = 2;
  ASSERT_TRUE(Read(source).ok());
  EXPECT_EQ(Text(1), "2$");
  EXPECT_THAT(Notes(NoteKind::kBadRow), IsEmpty());
}

// More rows than one group has, of every fate.
TEST_F(RowDocumentsTest, ThreadsChangeNothing) {
  std::string rows;
  for (int i = 0; i < 3 * kRowGroupRows; ++i) {
    if (i % 7 == 3) {
      absl::StrAppend(&rows, "{\"prompt\":", i, "}\n");
    } else {
      absl::StrAppend(&rows, "{\"prompt\":\"q", i, "\",\"completion\":\"", std::string(i % 80, 'a'),
                      "b\"}\n");
    }
  }
  DataSource source = Rows("rows.jsonl", rows);
  source.on_bad_row = BadRowPolicy::kSkip;
  source.max_bad_rows = 100000;
  ASSERT_TRUE(Read(source, 1).ok());
  const Collector serial = sink_;
  EXPECT_GT(serial.notes.size(), 1000u);
  ASSERT_TRUE(Read(source, 4).ok());
  ASSERT_EQ(sink_.documents.size(), serial.documents.size());
  for (size_t d = 0; d < serial.documents.size(); ++d) {
    ASSERT_EQ(sink_.documents[d].ids, serial.documents[d].ids) << d;
    ASSERT_EQ(sink_.documents[d].trained, serial.documents[d].trained) << d;
    ASSERT_EQ(sink_.documents[d].location.line, serial.documents[d].location.line) << d;
  }
  ASSERT_EQ(sink_.notes.size(), serial.notes.size());
  for (size_t n = 0; n < serial.notes.size(); ++n) {
    ASSERT_EQ(sink_.notes[n].location.line, serial.notes[n].location.line);
    ASSERT_EQ(sink_.notes[n].text, serial.notes[n].text);
  }
}

// BC-20: what was made with other settings is not taken.
TEST_F(RowDocumentsTest, TheCacheOfRowsIsOfOneTemplateAndOneFormat) {
  const DataSource source = Rows("rows.jsonl", R"({"instruction":"q","output":"a"})");
  const auto open = [&](const DataSource& from) {
    const ExampleEncoder encoder =
        Must(ExampleEncoder::Create({.tokenizer = &tokenizer_, .chat = &chat_}));
    return Must(TokenCache::OpenOrBuild(
        {.source = from, .encoder = &encoder, .directory = dir_.path() + "/cache"}));
  };
  const auto first = open(source);
  EXPECT_EQ(first->origin(), TokenCache::Origin::kBuilt);
  EXPECT_FALSE(first->AllTrained());
  const auto again = open(source);
  EXPECT_EQ(again->origin(), TokenCache::Origin::kFound);
  EXPECT_EQ(again->NoteCount(NoteKind::kFact), 1);
  DataSource named = source;
  named.rows.format = DefaultFormat(RowFormat::kAlpaca);
  EXPECT_EQ(open(named)->origin(), TokenCache::Origin::kBuilt);
  chat_ = {.chat_template = Must(BuiltInTemplate("llama3")), .options = {}};
  EXPECT_EQ(open(source)->origin(), TokenCache::Origin::kBuilt);
}

// Takes UTF-8 only, as the tokenizers of models do.
class Utf8Tokenizer final : public Tokenizer {
 public:
  absl::Status Encode(std::string_view text, std::vector<int32_t>& ids) const override {
    if (FindInvalidUtf8(text) != std::string::npos) {
      return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid, "not UTF-8");
    }
    return bytes_.Encode(text, ids);
  }
  absl::Status EncodeWithSpans(std::string_view text, const EncodeOptions& options,
                               Encoding& encoding) const override {
    return bytes_.EncodeWithSpans(text, options, encoding);
  }
  int64_t vocab_size() const override { return 257; }
  std::string fingerprint() const override { return "utf8"; }
  std::optional<int32_t> end_of_document() const override { return 256; }

 private:
  ByteTokenizer bytes_;
};

// A template that makes millions of tokens of a short row: a few rows are held at a time, and what
// comes out does not show it.
TEST_F(RowDocumentsTest, RowsOfManyTokensAreGivenOutInOrder) {
  chat_.chat_template = Must(ChatTemplate::Parse(
      "{% for m in messages %}{% generation %}{{ m.content * 1500000 }}{% endgeneration %}"
      "{% endfor %}",
      "many"));
  std::string rows;
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&rows, R"({"messages":[{"role":"user","content":""},)",
                    R"({"role":"assistant","content":")", i % 10, "\"}]}\n");
  }
  const DataSource source = Rows("rows.jsonl", rows);
  const ExampleEncoder encoder =
      Must(ExampleEncoder::Create({.tokenizer = &tokenizer_, .chat = &chat_}));
  class Counter final : public DocumentSink {
   public:
    absl::Status Append(std::span<const int32_t> ids, std::span<const uint8_t>) override {
      seen.push_back({ids.front(), static_cast<int64_t>(ids.size())});
      return absl::OkStatus();
    }
    absl::Status EndDocument(const SourceLocation& start) override {
      seen.push_back({-1, start.line});
      return absl::OkStatus();
    }
    absl::Status Note(const SourceNote&) override { return absl::OkStatus(); }
    std::vector<std::pair<int32_t, int64_t>> seen;
  };
  Counter sink;
  ASSERT_TRUE(ReadDocuments(source, {.encoder = &encoder, .threads = 2}, sink).ok());
  ASSERT_EQ(sink.seen.size(), 80u);
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(sink.seen[2 * i], std::pair(static_cast<int32_t>('0' + i % 10), int64_t{1'500'000}));
    EXPECT_EQ(sink.seen[2 * i + 1], std::pair(-1, int64_t{i + 1}));
  }
}

// Rows that take long, rendered by somebody else's program, must not keep a wish to stop waiting
// for the end of the group.
TEST_F(RowDocumentsTest, AWishToStopIsHeardBetweenFewRows) {
  std::string rows;
  for (int i = 0; i < 1000; ++i) rows += "{\"text\":\"a\"}\n";
  const DataSource source = Rows("rows.jsonl", rows);
  int64_t looks = 0;
  const auto progress = [&](int64_t new_bytes) {
    if (new_bytes > 0 || ++looks < 3) return absl::OkStatus();
    return absl::CancelledError("enough");
  };
  Collector sink;
  EXPECT_EQ(ReadDocuments(source, {.encoder = &ByteEncoder(), .progress = progress}, sink).status(),
            absl::CancelledError("enough"));
  EXPECT_EQ(static_cast<int64_t>(sink.documents.size()), 3 * kRowsPerLook);
}

TEST(TextDocumentsTest, TextThatIsNotUtf8IsRefusedAtItsLine) {
  TempDir dir;
  const Utf8Tokenizer tokenizer;
  const ExampleEncoder encoder = Must(ExampleEncoder::Create({.tokenizer = &tokenizer}));
  for (const TextDocuments documents : {TextDocuments::kWholeFile, TextDocuments::kBlankLine}) {
    const DataSource source = {.paths = {dir.Write("text", "one\n\nt\xc3\xa9xt\nab\xe9 \nend")},
                               .text_documents = documents};
    Collector sink;
    const absl::Status status = ReadDocuments(source, {.encoder = &encoder}, sink).status();
    EXPECT_EQ(ReasonOf(status), reason::kDataInvalid);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("/text:4:3: the text is not UTF-8"), HasSubstr("iconv")));
  }
}

TEST(TextDocumentsTest, ThreadsChangeNothing) {
  TempDir dir;
  std::string text;
  for (int i = 0; text.size() < (3u << 20); ++i) {
    absl::StrAppend(&text, "line ", i, i % 5 == 0 ? "\n\n" : "\n");
  }
  for (const TextDocuments documents : {TextDocuments::kWholeFile, TextDocuments::kBlankLine}) {
    const DataSource source = {.paths = {dir.Write("a", text), dir.Write("b", "short")},
                               .text_documents = documents};
    Collector serial, parallel;
    Must(ReadDocuments(source, {.encoder = &ByteEncoder()}, serial));
    Must(ReadDocuments(source, {.encoder = &ByteEncoder(), .threads = 3}, parallel));
    EXPECT_TRUE(serial.Ids() == parallel.Ids());
  }
}

}  // namespace
}  // namespace penstock
