// Mutated data files, the same in every run: nothing crashes, every row is text of the file at
// the place it names, and what is taken for a row means what an independent reading says.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/data/row_format.h"
#include "engine/data/row_parser.h"
#include "engine/data/row_splitter.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

constexpr int kRoundsPerSeed = 3000;
constexpr int64_t kLimit = 4096;

const std::vector<std::string> kJsonSeeds = {
    R"({"instruction":"Add é","input":"1 2","output":"3","history":[["a","b"]],"system":"s"})",
    R"({"conversations":[{"from":"human","value":"q\n\"x\""},{"from":"gpt","value":"a"}]})",
    R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[
      {"function":{"name":"f","arguments":{"x":1.5e3}}}]},{"role":"tool","content":"4"},
      {"role":"assistant","content":[{"type":"text","text":"a"}],"train":true}],"tools":"[{\"name\":\"f\"}]"})",
    R"({"prompt":[{"role":"user","content":"q"}],"completion":[{"role":"assistant","content":"a"}]})",
    R"({"prompt":"p","completion":"c","text":"\u00e9\ud83d\ude00"})"};

const std::vector<std::string> kCsvSeeds = {
    "instruction,input,output\r\n\"Add, \"\"1\"\"\",2,3\r\n\"two\nlines\",,\"\"\n",
    "text\nhello\n\"\"\n\n\xc3\xa9\n", "prompt,completion\n,\"\n", "a,b,a\n1,2,3\n"};

const std::vector<std::string> kPieces = {
    "\"",       "\"\"",        ",",       "\n",    "\r\n",
    "[",        "]",           "{",       "}",     ":",
    "\\",       "\0",          "\xff",    "\t",    "[[",
    "{}",       "null",        "\\ud800", "1e999", "\"from\"",
    "-0.0",     "true",        "[{",      "}]",    "\"role\":\"tool\"",
    "\xe2\x82", "\xef\xbb\xbf"};

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  std::string Mutate(std::string text) {
    for (int64_t n = 1 + Below(3); n > 0; --n) Change(text);
    return text;
  }

 private:
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }

  void Change(std::string& text) {
    const int64_t size = static_cast<int64_t>(text.size());
    const int64_t at = Below(size + 1);
    const int64_t length = Below(std::min<int64_t>(size - at, 40) + 1);
    switch (Below(5)) {
      case 0:
        text.insert(at, kPieces[Below(static_cast<int64_t>(kPieces.size()))]);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(Below(size + 1), text.substr(at, length));
        break;
      case 3:
        if (at < size) text[at] = static_cast<char>(Below(256));
        break;
      default:
        text.resize(at);  // cut off
    }
  }

  std::mt19937 random_;  // its values are fixed by the standard
};

// Byte offset of a line and column.
size_t OffsetOf(const std::string& content, int64_t line, int64_t column) {
  size_t at = 0;
  for (; line > 1; --line) at = content.find('\n', at) + 1;
  return at + static_cast<size_t>(column) - 1;
}

// A file without a disk: opening real ones would take all the time.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("penstock_fuzz", MFD_CLOEXEC)) {}
  MemoryFile(const MemoryFile&) = delete;
  ~MemoryFile() { close(fd_); }

  std::string Write(const std::string& content) const {
    EXPECT_EQ(ftruncate(fd_, 0), 0);
    EXPECT_EQ(pwrite(fd_, content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
    return "/proc/self/fd/" + std::to_string(fd_);
  }

 private:
  const int fd_;
};

class RowFuzzTest : public testing::Test {
 protected:
  struct Split {
    bool ok = false;
    std::vector<std::string> rows;
  };

  Split SplitFile(const std::string& content, FileKind kind) {
    Split split;
    auto file = InputFile::Open(file_.Write(content), nullptr);
    if (!file.ok()) return split;
    const std::string text = content.starts_with("\xef\xbb\xbf") ? content.substr(3) : content;
    const auto splitter = RowSplitter::Create(*file, kind, kLimit);
    for (;;) {
      const auto row = splitter->Next();
      if (!row.ok()) {
        EXPECT_EQ(ReasonOf(row.status()), reason::kDataInvalid);
        return split;
      }
      if (!*row) break;
      const std::string found((*row)->text);
      EXPECT_EQ(text.substr(OffsetOf(text, (*row)->line, (*row)->column), found.size()), found);
      split.rows.push_back(found);
    }
    split.ok = true;
    return split;
  }

  void CheckExamples(const ordered_json& row) {
    std::vector<FormatSpec> specs;
    for (const RowFormat format : {RowFormat::kAlpaca, RowFormat::kShareGpt, RowFormat::kMessages,
                                   RowFormat::kPromptCompletion, RowFormat::kText}) {
      specs.push_back(DefaultFormat(format));
    }
    if (const auto detected = DetectFormat(row); detected.ok()) specs.push_back(*detected);
    for (const FormatSpec& spec : specs) {
      Example example;
      if (const auto error = ToExample(row, spec, example)) {
        EXPECT_FALSE(error->message.empty());
        continue;
      }
      ++examples_;
      const Chat* chat = std::get_if<Chat>(&example);
      if (chat == nullptr) continue;
      EXPECT_TRUE(std::any_of(chat->messages.begin(), chat->messages.end(),
                              [](const ChatMessage& m) { return m.role() == "assistant"; }));
      for (const ChatMessage& message : chat->messages) {
        const ordered_json& content = message.fields.at("content");
        EXPECT_TRUE(content.is_string() || message.fields.contains("tool_calls"));
      }
    }
  }

  // Parses a row and says whether it is one.
  bool CheckRow(const RowParser& parser, const std::string& text, ordered_json& row) {
    if (const auto error = parser.Parse(text, row)) {
      EXPECT_FALSE(error->message.empty());
      const auto lines = std::count(text.begin(), text.end(), '\n');
      EXPECT_TRUE(error->line >= 0 && error->line <= lines);
      EXPECT_TRUE(error->column >= 1 && error->column <= static_cast<int64_t>(text.size()) + 1);
      return false;
    }
    EXPECT_TRUE(row.is_object());
    CheckExamples(row);
    return true;
  }

  MemoryFile file_;
  int64_t rows_ = 0;
  int64_t examples_ = 0;
};

TEST_F(RowFuzzTest, JsonLines) {
  Mutator mutator(1);
  RowParser parser;
  for (const std::string& seed : kJsonSeeds) {
    for (int round = 0; round < kRoundsPerSeed; ++round) {
      for (const std::string& text :
           SplitFile(mutator.Mutate(seed + "\n" + seed), FileKind::kJsonLines).rows) {
        ordered_json row;
        rows_ += CheckRow(parser, text, row) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(rows_, kRoundsPerSeed);  // the mutations leave something to look at
  EXPECT_GT(examples_, kRoundsPerSeed);
}

TEST_F(RowFuzzTest, JsonArraysAreReadAsTheWholeFileIs) {
  Mutator mutator(2);
  RowParser parser;
  int64_t whole = 0;
  for (const std::string& seed : kJsonSeeds) {
    for (int round = 0; round < kRoundsPerSeed; ++round) {
      const std::string content = mutator.Mutate("[" + seed + ", " + kJsonSeeds[0] + "]");
      const Split split = SplitFile(content, FileKind::kJsonArray);
      ordered_json rows = ordered_json::array();
      bool all = split.ok;
      for (const std::string& text : split.rows) {
        ordered_json row;
        all &= CheckRow(parser, text, row);
        rows.push_back(std::move(row));
      }
      // The parser of the whole file keeps the last of equal keys, which ours refuses.
      const ordered_json reference = ordered_json::parse(content, nullptr, false);
      const bool is_array = reference.is_array();
      // It also takes a byte-order mark for one only at the start of the file.
      if (content.find("\xef\xbb\xbf") != std::string::npos) continue;
      if (all) {
        EXPECT_TRUE(is_array) << content;
        EXPECT_EQ(rows, reference) << content;
        ++whole;
      } else if (is_array && split.ok) {
        EXPECT_EQ(split.rows.size(), reference.size()) << content;
      }
    }
  }
  EXPECT_GT(whole, kRoundsPerSeed / 10);
}

// RFC 4180 in the other direction.
std::string ToCsv(const std::vector<std::string>& fields) {
  std::string record;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) record += ',';
    record += '"';
    for (const char c : fields[i]) record += c == '"' ? "\"\"" : std::string(1, c);
    record += '"';
  }
  return record;
}

TEST_F(RowFuzzTest, CsvRecordsSurviveBeingWrittenAgain) {
  Mutator mutator(3);
  for (const std::string& seed : kCsvSeeds) {
    for (int round = 0; round < kRoundsPerSeed; ++round) {
      const Split split = SplitFile(mutator.Mutate(seed), FileKind::kCsv);
      if (split.rows.empty()) continue;
      RowParser parser;
      if (RowParser::Create(FileKind::kCsv, split.rows[0], parser)) continue;
      for (const std::string& text : split.rows) {
        ordered_json row;
        CheckRow(parser, text, row);
        std::vector<std::string> fields, again;
        if (ParseCsvRecord(text, ',', fields)) continue;
        ++rows_;
        EXPECT_FALSE(ParseCsvRecord(ToCsv(fields), ',', again));
        EXPECT_EQ(fields, again);
      }
    }
  }
  EXPECT_GT(rows_, kRoundsPerSeed);
}

}  // namespace
}  // namespace penstock
