#include "engine/tokenizer/sentencepiece_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/sentencepiece_added.h"
#include "engine/tokenizer/sentencepiece_rewriter.h"
#include "engine/tokenizer/special_tokens.h"
#include "engine/tokenizer/text_input.h"

namespace penstock {
namespace {

using Type = SentencePiece::Type;

absl::StatusOr<SentencePieceOptions> ReadOptions(const TokenizerFiles& files) {
  const std::string name = NameOf(files, "tokenizer_config.json");
  PENSTOCK_ASSIGN_OR_RETURN(const nlohmann::json root,
                            ParseTokenizerObject(files.tokenizer_config, name));
  const ConfigFields config(root, absl::StrCat(name, ": "));
  PENSTOCK_ASSIGN_OR_RETURN(const bool legacy, config.Bool("legacy", true));
  PENSTOCK_ASSIGN_OR_RETURN(const bool add_prefix, config.Bool("add_prefix_space", true));
  return SentencePieceOptions{.prefix_each_part = legacy, .prefix_start = legacy || add_prefix};
}

// Everything that decides about ids, as text.
std::string Describe(const TokenizerFiles& files, const SentencePieceOptions& options,
                     std::span<const AddedToken> added) {
  std::string text = absl::StrFormat("%d%d\n", options.prefix_each_part, options.prefix_start);
  for (const AddedToken& token : added) {
    absl::StrAppendFormat(&text, "%d %d%d%d%d %s\n", token.id, token.single_word, token.lstrip,
                          token.rstrip, token.special, token.content);
  }
  return text + files.sentencepiece_model;
}

// Text from the bytes of a run of byte pieces: U+FFFD for each that is part of no character.
void AppendBytes(std::string& bytes, std::string& text) {
  for (std::string_view rest = bytes; !rest.empty();) {
    const size_t length = Utf8SequenceLength(rest);
    if (length == 0) {
      text += "\xEF\xBF\xBD";
    } else {
      text += rest.substr(0, length);
    }
    rest.remove_prefix(std::max(length, size_t{1}));
  }
  bytes.clear();
}

}  // namespace

// One text; tokens are appended to `encoding`.
class SentencePieceTokenizer::Run {
 public:
  Run(const SentencePieceTokenizer& tokenizer, std::string_view text, Encoding& encoding)
      : tokenizer_(tokenizer), arena_(text), encoding_(encoding) {}

  absl::Status Encode(const EncodeOptions& options) {
    const bool add = options.post_process == PostProcess::kAddTokens;
    const SpecialTokenNames& names = tokenizer_.names_;
    if (add && names.bos && names.add_bos_token.value_or(true)) Add(names.bos->id, {});
    PENSTOCK_RETURN_IF_ERROR(
        tokenizer_.added_.Split(AddedTokens::Where::kOriginal, options.special_text, arena_.Whole(),
                                arena_, [&](const Piece& part, const AddedToken* token) {
                                  if (token == nullptr) {
                                    AddText(part);
                                  } else {
                                    Add(token->id, arena_.SpanOf(part, 0, part.text.size()));
                                  }
                                  return absl::OkStatus();
                                }));
    if (add && names.eos && names.add_eos_token.value_or(false)) Add(names.eos->id, {});
    return absl::OkStatus();
  }

 private:
  void Add(int32_t id, CharSpan span) {
    encoding_.ids.push_back(id);
    encoding_.spans.push_back({span.begin, span.end});
  }

  void AddText(const Piece& part) {
    const SentencePieceFile& file = tokenizer_.file_;
    const bool prefix =
        part.origin == 0 ? tokenizer_.options_.prefix_start : tokenizer_.options_.prefix_each_part;
    AlignedText rewritten;
    RewriteForSentencePiece(
        file.rewriting, tokenizer_.user_defined_,
        prefix && file.rewriting.add_dummy_prefix ? DummyPrefix::kYes : DummyPrefix::kNo, part.text,
        part.origin, rewritten);
    if (rewritten.text.empty()) return;
    std::vector<WordToken> tokens;
    tokenizer_.cutter_->Cut(rewritten.text, tokens);
    size_t at = 0;
    bool after_unknown = false;
    for (const WordToken& token : tokens) {
      const CharSpan span = {rewritten.spans[at].begin, rewritten.spans[at + token.bytes - 1].end};
      const std::string_view text = std::string_view(rewritten.text).substr(at, token.bytes);
      AddToken(token.id, text, span, after_unknown);
      after_unknown = token.id == PieceCutter::kUnknown;
      at += token.bytes;
    }
  }

  void AddToken(int32_t id, std::string_view text, CharSpan span, bool after_unknown) {
    if (id != PieceCutter::kUnknown) {
      Add(id, span);
    } else if (tokenizer_.file_.byte_fallback) {
      for (const char byte : text) {
        Add(tokenizer_.byte_ids_[static_cast<unsigned char>(byte)], span);
      }
    } else if (after_unknown) {
      encoding_.spans.back().end = span.end;
    } else {
      Add(tokenizer_.file_.unknown_id, span);
    }
  }

  const SentencePieceTokenizer& tokenizer_;
  TextArena arena_;
  Encoding& encoding_;
};

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceFile file, AddedTokens added,
                                               SentencePieceOptions options)
    : file_(std::move(file)), added_(std::move(added)), options_(options) {
  for (size_t i = 0; i < file_.pieces.size(); ++i) {
    const SentencePiece& piece = file_.pieces[i];
    const auto id = static_cast<int32_t>(i);
    ids_.emplace(piece.text, id);
    if (piece.type == Type::kUserDefined) user_defined_.Insert(piece.text, id);
  }
  for (size_t byte = 0; file_.byte_fallback && byte < 256; ++byte) {
    byte_ids_[byte] = ids_.at(absl::StrFormat("<0x%02X>", byte));
  }
  cutter_ = PieceCutter::Create(file_, user_defined_);
}

absl::StatusOr<std::unique_ptr<ModelTokenizer>> SentencePieceTokenizer::Create(
    const TokenizerFiles& files) {
  const std::string name = NameOf(files, "tokenizer.model");
  PENSTOCK_ASSIGN_OR_RETURN(SentencePieceFile file,
                            ReadSentencePieceFile(files.sentencepiece_model, name));
  PENSTOCK_ASSIGN_OR_RETURN(const SentencePieceOptions options, ReadOptions(files));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<AddedToken> tokens,
                            ReadSentencePieceAddedTokens(files, file));
  PENSTOCK_ASSIGN_OR_RETURN(AddedTokens added, AddedTokens::Create(std::move(tokens), name));
  auto tokenizer =
      absl::WrapUnique(new SentencePieceTokenizer(std::move(file), std::move(added), options));
  PENSTOCK_RETURN_IF_ERROR(tokenizer->ReadNames(files));
  tokenizer->fingerprint_ = FingerprintOf(
      "sentencepiece/1", Describe(files, options, tokenizer->added_tokens()), tokenizer->names_);
  return tokenizer;
}

absl::Status SentencePieceTokenizer::ReadNames(const TokenizerFiles& files) {
  const auto named = [&](const std::string& text) -> std::optional<NamedToken> {
    const auto it = ids_.find(text);
    if (it == ids_.end()) return std::nullopt;
    return NamedToken{it->second, text};
  };
  const SpecialTokenNames of_model = {
      .bos = named(file_.bos),
      .eos = named(file_.eos),
      .pad = named(file_.pad),
      .unk = named(file_.pieces[static_cast<size_t>(file_.unknown_id)].text)};
  PENSTOCK_ASSIGN_OR_RETURN(
      names_, ReadSpecialTokens(
                  files, [&](std::string_view token) { return TokenToId(token); }, of_model));
  return absl::OkStatus();
}

int64_t SentencePieceTokenizer::vocab_size() const {
  return std::max(static_cast<int64_t>(file_.pieces.size()), added_.id_end());
}

absl::Status SentencePieceTokenizer::EncodeWithSpans(std::string_view text,
                                                     const EncodeOptions& options,
                                                     Encoding& encoding) const {
  encoding.ids.clear();
  encoding.spans.clear();
  PENSTOCK_RETURN_IF_ERROR(CheckTextInput(text));
  return Run(*this, text, encoding).Encode(options);
}

absl::Status SentencePieceTokenizer::EncodeIds(std::string_view text, const EncodeOptions& options,
                                               std::vector<int32_t>& ids) const {
  Encoding encoding;
  PENSTOCK_RETURN_IF_ERROR(EncodeWithSpans(text, options, encoding));
  ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
  return absl::OkStatus();
}

std::string SentencePieceTokenizer::Decode(std::span<const int32_t> ids,
                                           SpecialIds special_ids) const {
  std::string text;
  std::string bytes;
  // Whether the space that the tokenizer put before the text may still come.
  bool prefix_expected =
      file_.rewriting.add_dummy_prefix || file_.rewriting.remove_extra_whitespaces;
  for (const int32_t id : ids) {
    const std::string* added = added_.SpelledById(id);
    const bool known = id >= 0 && id < static_cast<int64_t>(file_.pieces.size());
    if (added == nullptr && !known) continue;
    if (added == nullptr && file_.pieces[static_cast<size_t>(id)].type == Type::kByte) {
      const auto byte = std::find(byte_ids_.begin(), byte_ids_.end(), id) - byte_ids_.begin();
      bytes.push_back(static_cast<char>(byte));
      continue;
    }
    AppendBytes(bytes, text);
    prefix_expected = prefix_expected && text.empty();
    if (added != nullptr) {
      if (special_ids == SpecialIds::kKeep || !added_.IsSpecial(*added)) text += *added;
      continue;
    }
    std::string_view piece = file_.pieces[static_cast<size_t>(id)].text;
    if (prefix_expected && piece.starts_with(kSpaceMark)) {
      piece.remove_prefix(kSpaceMark.size());
      prefix_expected = file_.rewriting.remove_extra_whitespaces;
    }
    text += absl::StrReplaceAll(absl::string_view(piece.data(), piece.size()),
                                {{absl::string_view(kSpaceMark.data(), kSpaceMark.size()), " "}});
  }
  AppendBytes(bytes, text);
  return text;
}

std::optional<int32_t> SentencePieceTokenizer::TokenToId(std::string_view token) const {
  if (const std::optional<int32_t> id = added_.Find(token)) return id;
  const auto it = ids_.find(absl::string_view(token.data(), token.size()));
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

std::optional<std::string> SentencePieceTokenizer::IdToToken(int32_t id) const {
  if (const std::string* added = added_.SpelledById(id)) return *added;
  if (id < 0 || id >= static_cast<int64_t>(file_.pieces.size())) return std::nullopt;
  return file_.pieces[static_cast<size_t>(id)].text;
}

}  // namespace penstock
