// Damaged data files, whole: found out what they are, cut into rows, rendered by built-in or
// damaged templates, tokenized, masked. What comes out keeps the promises of DocumentSink, accounts
// for every row and does not depend on the number of threads.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/data/example_encoder.h"
#include "engine/data/source.h"
#include "engine/template/builtin_templates.h"
#include "engine/tokenizer/model_tokenizer.h"
#include "tests/fuzz/data_seeds.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/target.h"

namespace penstock::fuzz {
namespace {

// Takes documents, and holds them against what a sink is promised.
class CheckingSink final : public DocumentSink {
 public:
  explicit CheckingSink(int64_t vocab_size) : vocab_size_(vocab_size) {}

  absl::Status Append(std::span<const int32_t> ids, std::span<const uint8_t> trained) override {
    if (!trained.empty() && trained.size() != ids.size()) Fail("ids and marks differ in number");
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab_size_) Fail(absl::StrCat("id ", id));
    }
    for (const uint8_t mark : trained) {
      if (mark > 1) Fail("a mark that is no mark");
    }
    tokens_ += static_cast<int64_t>(ids.size());
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    trained_.insert(trained_.end(), trained.begin(), trained.end());
    trained_.push_back(2);
    return absl::OkStatus();
  }

  absl::Status EndDocument(const SourceLocation& start) override {
    if (tokens_ == 0) Fail("a document without tokens");
    if (start.file != 0 || start.line < 1) Fail("a document from nowhere");
    tokens_ = 0;
    ++documents_;
    ids_.push_back(-1);
    return absl::OkStatus();
  }

  absl::Status Note(const SourceNote& note) override {
    if (note.text.empty() && note.kind != NoteKind::kFact) Fail("a note without words");
    if (note.kind != NoteKind::kFact && (note.location.line < 1 || note.column < 1)) {
      Fail("a note about nowhere");
    }
    absl::StrAppend(&notes_, static_cast<int>(note.kind), " ", note.location.line, ":", note.column,
                    " ", note.text, "\n");
    return absl::OkStatus();
  }

  const std::optional<std::string>& problem() const { return problem_; }
  int64_t documents() const { return documents_; }
  bool SameAs(const CheckingSink& other) const {
    return ids_ == other.ids_ && trained_ == other.trained_ && notes_ == other.notes_;
  }

 private:
  void Fail(std::string what) {
    if (!problem_) problem_ = std::move(what);
  }

  const int64_t vocab_size_;
  std::optional<std::string> problem_;
  int64_t tokens_ = 0;  // of the document that is open
  int64_t documents_ = 0;
  std::vector<int32_t> ids_;  // -1 after every document
  std::vector<uint8_t> trained_;
  std::string notes_;
};

class EncoderTarget final : public Target {
 public:
  explicit EncoderTarget(const std::string& testdata) {
    tokenizers_.push_back(std::make_unique<ByteTokenizer>());
    for (const char* name : {"llama3", "qwen", "gemma"}) {
      const std::string golden = ReadSeed(absl::StrCat(testdata, "/tokenizers/", name, ".json"));
      tokenizers_.push_back(
          ModelTokenizer::Create(
              {.directory = name,
               .tokenizer_json = nlohmann::ordered_json::parse(golden)["tokenizer"].dump()})
              .value());
    }
    tokenizers_.push_back(ModelTokenizer::Create({.directory = "llama",
                                                  .sentencepiece_model = ReadSeed(
                                                      testdata + "/sentencepiece/llama.model")})
                              .value());
    for (const std::string& name : BuiltInTemplateNames()) {
      templates_.push_back(BuiltInTemplate(name).value());
    }
  }

  absl::StatusOr<Outcome> RunCase(Random& random) override {
    const Tokenizer& tokenizer = *random.Pick(tokenizers_);
    const std::optional<ChatSetup> chat = MakeChat(random);
    const auto encoder =
        ExampleEncoder::Create({.tokenizer = &tokenizer,
                                .chat = chat ? &*chat : nullptr,
                                .rules = {.train_on_prompt = random.OneIn(4),
                                          .mask_history = random.OneIn(4),
                                          .max_tokens = static_cast<int64_t>(random.Below(4) * 40),
                                          .too_long = static_cast<TooLong>(random.Below(3))}});
    if (!encoder.ok()) return Violation(encoder.status().ToString(), "");
    const std::string content = MakeFile(random);
    const DataSource source = MakeSource(content, random);
    CheckingSink sink(source.format == DataFormat::kTokenIdsJsonl
                          ? int64_t{1} << 31
                          : std::max<int64_t>(tokenizer.vocab_size(), 1));
    const auto read = ReadDocuments(source, {.encoder = &*encoder}, sink);
    if (sink.problem()) return Violation(*sink.problem(), content);
    if (random.OneIn(16)) {  // threads are slow to start
      CheckingSink other(int64_t{1} << 31);
      const auto again = ReadDocuments(source, {.encoder = &*encoder, .threads = 3}, other);
      if (again.status() != read.status() || !sink.SameAs(other)) {
        return Violation("another number of threads gives other documents", content);
      }
    }
    if (!read.ok()) {
      if (absl::Status status = CheckRefusal(read.status(), content); !status.ok()) return status;
    }
    return sink.documents() > 0 ? Outcome::kAccepted : Outcome::kRefused;
  }

 private:
  std::optional<ChatSetup> MakeChat(Random& random) const {
    if (random.OneIn(8)) return std::nullopt;
    const ChatTemplate& built_in = random.Pick(templates_);
    jinja::Limits limits;
    limits.max_steps = 50'000;
    limits.max_output_bytes = 1 << 16;
    ChatSetup chat = {.chat_template = built_in,
                      .options = {.bos_token = "<s>", .eos_token = "</s>", .limits = limits}};
    if (random.OneIn(3)) {
      auto damaged = ChatTemplate::Parse(
          MutateText(built_in.source(), {}, random.Pick(templates_).source(), random), "damaged");
      if (damaged.ok()) chat.chat_template = *std::move(damaged);
    }
    return chat;
  }

  static std::string MakeFile(Random& random) {
    std::string content;
    switch (random.Below(4)) {
      case 0:
        content = random.Pick(CsvFiles());
        break;
      case 1:
        content = MakeText(random) + "\n\n" + MakeText(random);
        break;
      default: {
        const bool array = random.OneIn(3);
        const std::string* row = &random.Pick(JsonRows());
        content = array ? "[" : "";
        for (size_t i = 1 + random.Below(4); i > 0; --i) {
          if (random.OneIn(5)) row = &random.Pick(JsonRows());
          absl::StrAppend(&content, *row, array ? "," : "\n");
        }
        if (array) content.back() = ']';
      }
    }
    if (random.OneIn(3)) return content;
    return MutateText(std::move(content), DataDictionary(), random.Pick(JsonRows()), random);
  }

  DataSource MakeSource(const std::string& content, Random& random) const {
    DataSource source = {.paths = {file_.Write(content)}};
    const bool rows = random.Below(4) > 0;
    source.format = rows              ? DataFormat::kRows
                    : random.OneIn(2) ? DataFormat::kText
                                      : DataFormat::kTokenIdsJsonl;
    source.text_documents = random.OneIn(2) ? TextDocuments::kBlankLine : TextDocuments::kWholeFile;
    source.on_bad_row = random.OneIn(3) ? BadRowPolicy::kRefuse : BadRowPolicy::kSkip;
    source.max_bad_rows = static_cast<int64_t>(random.Below(5));
    if (random.OneIn(4)) source.rows.max_rows = 1 + static_cast<int64_t>(random.Below(3));
    if (random.OneIn(2)) {
      source.rows.format = DefaultFormat(static_cast<RowFormat>(random.Below(5)));
      if (random.OneIn(3)) source.rows.format->turns = Turns::kAlternate;
    }
    return source;
  }

  std::vector<std::unique_ptr<Tokenizer>> tokenizers_;
  std::vector<ChatTemplate> templates_;
  MemoryFile file_;
};

}  // namespace

std::unique_ptr<Target> MakeEncoderTarget(const std::string& testdata) {
  return std::make_unique<EncoderTarget>(testdata);
}

}  // namespace penstock::fuzz
