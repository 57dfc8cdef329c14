// Damaged tokenizer.json, SentencePiece models and the files beside them.
#include "tests/fuzz/tokenizer_target.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/base/utf8.h"
#include "tests/fuzz/mutation.h"

namespace penstock::fuzz {
namespace {

using nlohmann::ordered_json;

const std::string kConfig =
    R"({"add_bos_token":true,"add_eos_token":false,"bos_token":{"content":"<s>","lstrip":false},
        "eos_token":"</s>","pad_token":null,"unk_token":"<unk>","legacy":false,
        "add_prefix_space":true,"chat_template":"{{ messages }}","added_tokens_decoder":{
        "0":{"content":"<unk>","special":true},"64":{"content":"<new>","lstrip":true,
        "normalized":false,"rstrip":false,"single_word":true,"special":false}}})";
const std::string kSpecialTokensMap = R"({"bos_token":"<s>","eos_token":{"content":"</s>"}})";
const std::string kAddedTokens = R"({"<new>":70,"<other>":71})";

bool IsUtf8(std::string_view text) { return FindInvalidUtf8(text) == std::string_view::npos; }

std::string Describe(const TokenizerFiles& files, const std::string& text) {
  return absl::StrCat("text ", text, "\ntokenizer_config.json ", files.tokenizer_config,
                      "\nspecial_tokens_map.json ", files.special_tokens_map,
                      "\nadded_tokens.json ", files.added_tokens, "\ntokenizer.json ",
                      files.tokenizer_json, "\ntokenizer.model ", files.sentencepiece_model);
}

absl::Status CheckEncoding(const ModelTokenizer& tokenizer, const std::string& text,
                           const EncodeOptions& options, const std::string& input) {
  Encoding encoding;
  std::vector<int32_t> ids = {-7};
  const absl::Status encoded = tokenizer.EncodeWithSpans(text, options, encoding);
  const absl::Status again = tokenizer.EncodeIds(text, options, ids);
  if (encoded.ok() != again.ok()) return Violation("with spans and without differ", input);
  if (encoded.ok() && !IsUtf8(text)) return Violation("text that is no UTF-8 is taken", input);
  if (!encoded.ok()) return CheckRefusal(encoded, input);
  if (ids.front() != -7 ||
      !std::equal(ids.begin() + 1, ids.end(), encoding.ids.begin(), encoding.ids.end())) {
    return Violation("ids with spans and without differ", input);
  }
  if (encoding.ids.size() != encoding.spans.size()) return Violation("ids and spans", input);
  const auto size = static_cast<int64_t>(text.size());
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    const TextSpan& span = encoding.spans[i];
    if (encoding.ids[i] < 0 || encoding.ids[i] >= tokenizer.vocab_size()) {
      return Violation(absl::StrCat("id ", encoding.ids[i]), input);
    }
    if (span.begin < 0 || span.end < span.begin || span.end > size) {
      return Violation(absl::StrCat("span ", span.begin, " ", span.end), input);
    }
  }
  for (const auto special :
       {ModelTokenizer::SpecialIds::kKeep, ModelTokenizer::SpecialIds::kLeaveOut}) {
    if (!IsUtf8(tokenizer.Decode(encoding.ids, special))) {
      return Violation("decoded text is no UTF-8", input);
    }
  }
  return absl::OkStatus();
}

class TokenizerJsonTarget final : public Target {
 public:
  explicit TokenizerJsonTarget(const std::string& testdata) {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(testdata + "/tokenizers")) {
      paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
      seeds_.push_back(ordered_json::parse(ReadSeed(path))["tokenizer"]);
      texts_.push_back(seeds_.back().dump());
    }
  }

  absl::StatusOr<Outcome> RunCase(Random& random) override {
    TokenizerFiles files = {.directory = "m"};
    const size_t seed = random.Below(seeds_.size());
    if (random.OneIn(3)) {
      static const std::vector<std::string> dictionary = {
          "null", "true", "-1", "\"", "{", "}", "[", "]", ",", ":", "\\u0000", "\\ud800", "1e999"};
      files.tokenizer_json =
          MutateText(texts_[seed], dictionary, texts_[random.Below(texts_.size())], random);
    } else {
      ordered_json damaged = seeds_[seed];
      MutateJson(damaged, random);
      files.tokenizer_json = ToText(damaged);
    }
    if (random.OneIn(4)) {
      ordered_json config = ordered_json::parse(kConfig);
      MutateJson(config, random);
      files.tokenizer_config = ToText(config);
    }
    if (random.OneIn(8)) files.special_tokens_map = MutateText(kSpecialTokensMap, {}, "", random);
    return UseTokenizer(files, random);
  }

 private:
  std::vector<ordered_json> seeds_;
  std::vector<std::string> texts_;  // the same
};

class SentencePieceTarget final : public Target {
 public:
  explicit SentencePieceTarget(const std::string& testdata) {
    for (const char* name : {"bpe_nfkc", "bpe_trim", "gemma", "llama", "unigram_bytes",
                             "unigram_casefold", "unigram_nfkc"}) {
      seeds_.push_back(ReadSeed(absl::StrCat(testdata, "/sentencepiece/", name, ".model")));
    }
  }

  absl::StatusOr<Outcome> RunCase(Random& random) override {
    TokenizerFiles files = {.directory = "m"};
    const std::string& seed = random.Pick(seeds_);
    files.sentencepiece_model = random.OneIn(3) ? MutateText(seed, {}, random.Pick(seeds_), random)
                                                : MutateProto(seed, random);
    if (random.OneIn(3)) {
      ordered_json config = ordered_json::parse(kConfig);
      MutateJson(config, random);
      files.tokenizer_config = ToText(config);
    }
    if (random.OneIn(4)) {
      ordered_json added = ordered_json::parse(kAddedTokens);
      MutateJson(added, random);
      files.added_tokens = ToText(added);
    }
    return UseTokenizer(files, random);
  }

 private:
  std::vector<std::string> seeds_;
};

}  // namespace

absl::StatusOr<Outcome> UseTokenizer(const TokenizerFiles& files, Random& random) {
  const std::string text = MakeText(random);
  const std::string input = Describe(files, text);
  const auto tokenizer = ModelTokenizer::Create(files);
  if (!tokenizer.ok()) {
    if (absl::Status status = CheckRefusal(tokenizer.status(), input); !status.ok()) return status;
    return Outcome::kRefused;
  }
  for (const auto special : {SpecialText::kToken, SpecialText::kPlainText}) {
    for (const auto process : {PostProcess::kSkip, PostProcess::kAddTokens}) {
      const EncodeOptions options = {.special_text = special, .post_process = process};
      if (absl::Status status = CheckEncoding(**tokenizer, text, options, input); !status.ok()) {
        return status;
      }
    }
  }
  // Ids that it never gave.
  std::vector<int32_t> ids;
  for (size_t i = random.Below(10); i > 0; --i) {
    ids.push_back(static_cast<int32_t>(random.Below(1 << 10)) - 10);
  }
  ids.push_back(std::numeric_limits<int32_t>::max());
  ids.push_back(std::numeric_limits<int32_t>::min());
  if (!IsUtf8((*tokenizer)->Decode(ids, ModelTokenizer::SpecialIds::kKeep))) {
    return Violation("decoded text is no UTF-8", input);
  }
  for (const int32_t id : ids) (*tokenizer)->IdToToken(id);
  return Outcome::kAccepted;
}

std::unique_ptr<Target> MakeTokenizerJsonTarget(const std::string& testdata) {
  return std::make_unique<TokenizerJsonTarget>(testdata);
}

std::unique_ptr<Target> MakeSentencePieceTarget(const std::string& testdata) {
  return std::make_unique<SentencePieceTarget>(testdata);
}

}  // namespace penstock::fuzz
