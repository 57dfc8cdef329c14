// Damaged data files: every row is text of the file at the place it names, and what is taken for a
// row means what an independent reading says.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/data/row_format.h"
#include "engine/data/row_parser.h"
#include "engine/data/row_splitter.h"
#include "tests/fuzz/data_seeds.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/target.h"

namespace penstock::fuzz {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLongestRow = 4096;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Byte offset of a line and column; beyond the end if there is no such line.
size_t OffsetOf(std::string_view content, int64_t line, int64_t column) {
  size_t at = 0;
  for (; line > 1; --line) {
    at = content.find('\n', at);
    if (at == std::string_view::npos) return content.size() + 1;
    ++at;
  }
  return at + static_cast<size_t>(column) - 1;
}

class RowsTarget : public Target {
 protected:
  struct Split {
    bool whole = false;  // the file was read to its end
    std::vector<std::string> rows;
  };

  absl::StatusOr<Split> SplitFile(const std::string& content, FileKind kind) const {
    Split split;
    auto file = InputFile::Open(file_.Write(content), nullptr);
    if (!file.ok()) return split;
    std::string_view text = content;
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    const auto splitter = RowSplitter::Create(*file, kind, kLongestRow);
    for (;;) {
      const auto row = splitter->Next();
      if (!row.ok()) {
        if (ReasonOf(row.status()) == reason::kDataInvalid) return split;
        return Violation(absl::StrCat("not DATA_INVALID: ", row.status().ToString()), content);
      }
      if (!*row) break;
      const size_t at = OffsetOf(text, (*row)->line, (*row)->column);
      if (at > text.size() || text.substr(at, (*row)->text.size()) != (*row)->text) {
        return Violation("a row is not where it says", content);
      }
      split.rows.emplace_back((*row)->text);
    }
    split.whole = true;
    return split;
  }

  // Nothing if the text is no row.
  static absl::StatusOr<std::optional<ordered_json>> ParseRow(const RowParser& parser,
                                                              const std::string& text) {
    ordered_json row;
    if (const auto error = parser.Parse(text, row)) {
      const auto lines = std::count(text.begin(), text.end(), '\n');
      if (error->message.empty() || error->line < 0 || error->line > lines || error->column < 1 ||
          error->column > static_cast<int64_t>(text.size()) + 1) {
        return Violation("a row's error is nowhere in the row", text);
      }
      return std::nullopt;
    }
    if (!row.is_object()) return Violation("a row that is no object", text);
    if (absl::Status status = CheckExamples(row, text); !status.ok()) return status;
    return row;
  }

 private:
  static absl::Status CheckExamples(const ordered_json& row, const std::string& text) {
    std::vector<FormatSpec> specs;
    for (const RowFormat format : {RowFormat::kAlpaca, RowFormat::kShareGpt, RowFormat::kMessages,
                                   RowFormat::kPromptCompletion, RowFormat::kText}) {
      specs.push_back(DefaultFormat(format));
      specs.push_back(specs.back());
      specs.back().turns = Turns::kAlternate;
    }
    if (const auto detected = DetectFormat(row); detected.ok()) specs.push_back(*detected);
    for (const FormatSpec& spec : specs) {
      Example example;
      if (const auto error = ToExample(row, spec, example)) {
        if (error->message.empty()) return Violation("refused without a reason", text);
      } else if (const Chat* chat = std::get_if<Chat>(&example)) {
        if (absl::Status status = CheckChat(*chat, text); !status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  static absl::Status CheckChat(const Chat& chat, const std::string& text) {
    bool answered = false;
    for (const ChatMessage& message : chat.messages) {
      answered |= message.role() == "assistant";
      const ordered_json& content = message.fields.at("content");
      if (!content.is_string() && !message.fields.contains("tool_calls")) {
        return Violation("a message without content", text);
      }
    }
    return answered ? absl::OkStatus() : Violation("a conversation without an answer", text);
  }

  MemoryFile file_;
};

class JsonLinesTarget final : public RowsTarget {
 public:
  absl::StatusOr<Outcome> RunCase(Random& random) override {
    const std::string& seed = random.Pick(JsonRows());
    const std::string content = MutateText(absl::StrCat(seed, "\n", random.Pick(JsonRows()), "\n"),
                                           DataDictionary(), seed, random);
    const auto split = SplitFile(content, FileKind::kJsonLines);
    if (!split.ok()) return split.status();
    Outcome outcome = Outcome::kRefused;
    for (const std::string& text : split->rows) {
      const auto row = ParseRow(parser_, text);
      if (!row.ok()) return row.status();
      if (*row) outcome = Outcome::kAccepted;
    }
    return outcome;
  }

 private:
  RowParser parser_;
};

// An array's rows are what a parser of the whole file says that they are.
class JsonArrayTarget final : public RowsTarget {
 public:
  absl::StatusOr<Outcome> RunCase(Random& random) override {
    const std::string content =
        MutateText(absl::StrCat("[", random.Pick(JsonRows()), ", ", random.Pick(JsonRows()), "]"),
                   DataDictionary(), random.Pick(JsonRows()), random);
    const auto split = SplitFile(content, FileKind::kJsonArray);
    if (!split.ok()) return split.status();
    ordered_json rows = ordered_json::array();
    bool all = split->whole;
    for (const std::string& text : split->rows) {
      auto row = ParseRow(parser_, text);
      if (!row.ok()) return row.status();
      all &= row->has_value();
      rows.push_back(row->value_or(ordered_json()));
    }
    const Outcome outcome = all ? Outcome::kAccepted : Outcome::kRefused;
    // Penstock takes a byte-order mark for one at the start of the file only.
    if (content.find(kByteOrderMark) != std::string::npos) return outcome;
    // It keeps the last of equal keys, which ours refuses.
    const ordered_json reference = ordered_json::parse(content, nullptr, false);
    if (all && rows != reference) return Violation("rows differ from the file's", content);
    if (!all && split->whole && reference.is_array() && split->rows.size() != reference.size()) {
      return Violation("as many rows as elements are wanted", content);
    }
    return outcome;
  }

 private:
  RowParser parser_;
};

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

// A record that was written again is the same record.
class CsvTarget final : public RowsTarget {
 public:
  absl::StatusOr<Outcome> RunCase(Random& random) override {
    const std::string content =
        MutateText(random.Pick(CsvFiles()), DataDictionary(), random.Pick(CsvFiles()), random);
    const auto split = SplitFile(content, FileKind::kCsv);
    if (!split.ok()) return split.status();
    RowParser parser;
    if (split->rows.empty() || RowParser::Create(FileKind::kCsv, split->rows[0], parser)) {
      return Outcome::kRefused;
    }
    for (const std::string& text : split->rows) {
      const auto row = ParseRow(parser, text);
      if (!row.ok()) return row.status();
      std::vector<std::string> fields, again;
      if (ParseCsvRecord(text, ',', fields)) continue;
      if (ParseCsvRecord(ToCsv(fields), ',', again) || fields != again) {
        return Violation("a record that was written again differs", text);
      }
    }
    return Outcome::kAccepted;
  }
};

}  // namespace

std::unique_ptr<Target> MakeJsonLinesTarget(const std::string& /*testdata*/) {
  return std::make_unique<JsonLinesTarget>();
}

std::unique_ptr<Target> MakeJsonArrayTarget(const std::string& /*testdata*/) {
  return std::make_unique<JsonArrayTarget>();
}

std::unique_ptr<Target> MakeCsvTarget(const std::string& /*testdata*/) {
  return std::make_unique<CsvTarget>();
}

}  // namespace penstock::fuzz
