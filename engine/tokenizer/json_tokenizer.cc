#include "engine/tokenizer/json_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/model/strict_json.h"
#include "engine/tokenizer/special_tokens.h"
#include "engine/tokenizer/text_input.h"

namespace penstock {
namespace {

using nlohmann::json;

absl::Status CheckModelType(const ConfigFields& model) {
  if (model.Find("type") == nullptr && model.Find("merges") != nullptr) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const std::string type, model.String("type"));
  if (type == "BPE") return absl::OkStatus();
  return model.Unsupported(
      "type", absl::StrCat("is \"", type.substr(0, 60),
                           "\"; of the model types Penstock has BPE alone. Decoder language models "
                           "use it; for others, tokenize the data with the model's own library "
                           "and train on token ids"));
}

}  // namespace

// Gives a worker back when the call ends.
class JsonTokenizer::WorkerLease {
 public:
  explicit WorkerLease(const JsonTokenizer& tokenizer) : tokenizer_(tokenizer) {
    const std::lock_guard lock(tokenizer_.mutex_);
    auto& idle = tokenizer_.idle_workers_;
    if (idle.empty()) return;
    worker_ = std::move(idle.back());
    idle.pop_back();
  }
  ~WorkerLease() {
    if (worker_ == nullptr) return;
    const std::lock_guard lock(tokenizer_.mutex_);
    tokenizer_.idle_workers_.push_back(std::move(worker_));
  }
  WorkerLease(const WorkerLease&) = delete;
  WorkerLease& operator=(const WorkerLease&) = delete;

  Worker& operator*() {
    if (worker_ == nullptr) worker_ = std::make_unique<Worker>();
    return *worker_;
  }

 private:
  const JsonTokenizer& tokenizer_;
  std::unique_ptr<Worker> worker_;
};

// One text on its way through the pipeline; tokens are appended to `encoding`.
class JsonTokenizer::Run {
 public:
  enum class Spans : uint8_t { kNone, kWanted };

  Run(const JsonTokenizer& tokenizer, std::string_view text, Spans spans, Worker& worker,
      Encoding& encoding)
      : tokenizer_(tokenizer),
        arena_(text),
        spans_(spans),
        worker_(worker),
        encoding_(encoding),
        margins_(spans == Spans::kWanted && !tokenizer.margins_.empty()) {
    worker_.margins.clear();
  }

  absl::Status Encode(const EncodeOptions& options) {
    const size_t begin = encoding_.ids.size();
    const auto plain = [&](const Piece& piece) {
      return Split(tokenizer_.pre_tokenizers_, piece, arena_,
                   [&](const Piece& word) { return AddWord(word); });
    };
    const auto normalized = [&](const Piece& part, const AddedToken* token) {
      return token == nullptr ? plain(part) : AddToken(part, *token);
    };
    const auto original = [&](const Piece& part, const AddedToken* token) -> absl::Status {
      if (token != nullptr) return AddToken(part, *token);
      PENSTOCK_ASSIGN_OR_RETURN(const Piece piece, Apply(tokenizer_.normalizers_, part, arena_));
      return tokenizer_.added_.Split(AddedTokens::Where::kNormalized, options.special_text, piece,
                                     arena_, normalized);
    };
    PENSTOCK_RETURN_IF_ERROR(tokenizer_.added_.Split(
        AddedTokens::Where::kOriginal, options.special_text, arena_.Whole(), arena_, original));
    tokenizer_.post_processor_.Apply(options.post_process, arena_.original(), worker_.margins,
                                     begin, encoding_);
    return absl::OkStatus();
  }

 private:
  void AddSpan(const Piece& piece, size_t begin, size_t end) {
    TextSpan span = {piece.origin, piece.origin};
    end = std::min(end, piece.text.size());
    if (begin < end) {
      const CharSpan chars = arena_.SpanOf(piece, begin, end);
      span = {chars.begin, chars.end};
    }
    encoding_.spans.push_back(span);
  }

  absl::Status AddToken(const Piece& part, const AddedToken& token) {
    encoding_.ids.push_back(token.id);
    if (spans_ == Spans::kWanted) AddSpan(part, 0, part.text.size());
    if (margins_) worker_.margins.push_back(MarginsOf(part.text));
    return absl::OkStatus();
  }

  absl::Status AddWord(const Piece& word) {
    std::vector<WordToken>& tokens = worker_.word_tokens;
    tokens.clear();
    if (!worker_.cache.Find(word.text, tokens)) {
      tokenizer_.model_.Encode(word.text, worker_.scratch, tokens);
      worker_.cache.Insert(word.text, tokens);
    }
    for (const WordToken& token : tokens) encoding_.ids.push_back(token.id);
    if (spans_ == Spans::kNone) return absl::OkStatus();
    size_t begin = 0;
    for (const WordToken& token : tokens) {
      AddSpan(word, begin, begin + token.bytes);
      begin += token.bytes;
      if (margins_) worker_.margins.push_back(tokenizer_.margins_[static_cast<size_t>(token.id)]);
    }
    return absl::OkStatus();
  }

  const JsonTokenizer& tokenizer_;
  TextArena arena_;
  const Spans spans_;
  Worker& worker_;
  Encoding& encoding_;
  const bool margins_;
};

JsonTokenizer::JsonTokenizer(BpeModel model, Normalizers normalizers, AddedTokens added,
                             PreTokenizers pre_tokenizers, PostProcessor post_processor,
                             Decoder decoder)
    : model_(std::move(model)),
      normalizers_(std::move(normalizers)),
      added_(std::move(added)),
      pre_tokenizers_(std::move(pre_tokenizers)),
      post_processor_(std::move(post_processor)),
      decoder_(std::move(decoder)) {
  vocab_size_ = std::max(
      {model_.vocabulary().id_end(), added_.id_end(), int64_t{post_processor_.max_id()} + 1});
}

absl::StatusOr<std::unique_ptr<ModelTokenizer>> JsonTokenizer::Create(const TokenizerFiles& files) {
  const std::string name = NameOf(files, "tokenizer.json");
  PENSTOCK_ASSIGN_OR_RETURN(const json root, ParseStrictJson(files.tokenizer_json, name,
                                                             {.max_bytes = kMaxTokenizerFileBytes},
                                                             reason::kModelInvalid));
  if (!root.is_object()) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kModelInvalid,
                 absl::StrCat(name, " is ", ShortJson(root), "; an object is needed"));
  }
  const ConfigFields file(root, absl::StrCat(name, ": "));
  const json* model_json = file.Find("model");
  if (model_json == nullptr || !model_json->is_object()) return file.Wanted("model", "an object");
  const ConfigFields model_fields(*model_json, absl::StrCat(name, ": model."));
  PENSTOCK_RETURN_IF_ERROR(CheckModelType(model_fields));
  PENSTOCK_ASSIGN_OR_RETURN(BpeModel model, BpeModel::Read(model_fields));
  PENSTOCK_ASSIGN_OR_RETURN(Normalizers normalizers, ReadNormalizers(file, "normalizer"));
  PENSTOCK_ASSIGN_OR_RETURN(
      AddedTokens added, AddedTokens::Read(file, "added_tokens", model.vocabulary(), normalizers));
  PENSTOCK_ASSIGN_OR_RETURN(
      PreTokenizers pre_tokenizers,
      ReadPreTokenizers(file, "pre_tokenizer",
                        model.CanTakeRawBytes() ? ByteSpelling::kRaw : ByteSpelling::kSpelled));
  if (pre_tokenizers.spelling == ByteSpelling::kRaw) model.TakeRawBytes();
  PENSTOCK_ASSIGN_OR_RETURN(PostProcessor post, PostProcessor::Read(file, "post_processor"));
  PENSTOCK_ASSIGN_OR_RETURN(Decoder decoder, Decoder::Read(file, "decoder"));
  auto tokenizer = absl::WrapUnique(new JsonTokenizer(std::move(model), std::move(normalizers),
                                                      std::move(added), std::move(pre_tokenizers),
                                                      std::move(post), std::move(decoder)));
  if (tokenizer->post_processor_.trims()) tokenizer->ReadMargins();
  PENSTOCK_ASSIGN_OR_RETURN(tokenizer->names_,
                            ReadSpecialTokens(files, [&](std::string_view token) {
                              return tokenizer->TokenToId(token);
                            }));
  tokenizer->fingerprint_ = FingerprintOf("json/1", files.tokenizer_json, tokenizer->names_);
  return tokenizer;
}

void JsonTokenizer::ReadMargins() {
  const Vocabulary& vocabulary = model_.vocabulary();
  margins_.resize(static_cast<size_t>(vocabulary.id_end()) + 1);
  for (int64_t id = 0; id < vocabulary.id_end(); ++id) {
    const std::string* token = vocabulary.TokenOf(static_cast<int32_t>(id));
    if (token != nullptr) margins_[static_cast<size_t>(id)] = MarginsOf(*token);
  }
}

absl::Status JsonTokenizer::EncodeWithSpans(std::string_view text, const EncodeOptions& options,
                                            Encoding& encoding) const {
  encoding.ids.clear();
  encoding.spans.clear();
  PENSTOCK_RETURN_IF_ERROR(CheckTextInput(text));
  WorkerLease worker(*this);
  return Run(*this, text, Run::Spans::kWanted, *worker, encoding).Encode(options);
}

absl::Status JsonTokenizer::EncodeIds(std::string_view text, const EncodeOptions& options,
                                      std::vector<int32_t>& ids) const {
  PENSTOCK_RETURN_IF_ERROR(CheckTextInput(text));
  WorkerLease worker(*this);
  Encoding encoding;
  encoding.ids = std::move(ids);
  const absl::Status status =
      Run(*this, text, Run::Spans::kNone, *worker, encoding).Encode(options);
  ids = std::move(encoding.ids);
  return status;
}

std::string JsonTokenizer::Decode(std::span<const int32_t> ids, SpecialIds special_ids) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    const std::string* token = added_.SpelledById(id);
    if (token == nullptr) token = model_.vocabulary().TokenOf(id);
    if (token == nullptr) continue;
    if (special_ids == SpecialIds::kLeaveOut && added_.IsSpecial(*token)) continue;
    tokens.push_back(*token);
  }
  return decoder_.Decode(std::move(tokens));
}

std::optional<int32_t> JsonTokenizer::TokenToId(std::string_view token) const {
  if (const std::optional<int32_t> id = added_.Find(token)) return id;
  return model_.vocabulary().Find(token);
}

std::optional<std::string> JsonTokenizer::IdToToken(int32_t id) const {
  for (const AddedToken& token : added_.tokens()) {
    if (token.id == id) return token.content;
  }
  const std::string* token = model_.vocabulary().TokenOf(id);
  if (token == nullptr) return std::nullopt;
  return *token;
}

}  // namespace penstock
