#include "engine/tokenizer/sentencepiece_added.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/model/config_fields.h"
#include "engine/tokenizer/special_tokens.h"
#include "engine/tokenizer/vocabulary.h"

namespace penstock {
namespace {

using nlohmann::json;

class Collection {
 public:
  explicit Collection(const SentencePieceFile& file) {
    for (size_t id = 0; id < file.pieces.size(); ++id) {
      const SentencePiece& piece = file.pieces[id];
      ids_.emplace(piece.text, static_cast<int32_t>(id));
      if (piece.type == SentencePiece::Type::kControl ||
          piece.type == SentencePiece::Type::kUnknown) {
        Add({.id = static_cast<int32_t>(id), .content = piece.text, .special = true});
      }
    }
  }

  // A token that is there already keeps its id; its flags are the new ones.
  void Add(AddedToken token) {
    if (token.content.empty()) return;
    if (const auto known = ids_.find(token.content); known != ids_.end()) token.id = known->second;
    const auto [it, added] = places_.try_emplace(token.content, tokens_.size());
    if (added) {
      ids_.emplace(token.content, token.id);
      tokens_.push_back(std::move(token));
    } else {
      tokens_[it->second] = std::move(token);
    }
  }

  bool Has(const std::string& content) const { return places_.contains(content); }
  std::vector<AddedToken> Take() && { return std::move(tokens_); }

 private:
  absl::flat_hash_map<std::string, int32_t> ids_;
  absl::flat_hash_map<std::string, size_t> places_;  // in tokens_
  std::vector<AddedToken> tokens_;
};

absl::Status ReadDecoderTokens(const TokenizerFiles& files, Collection& tokens) {
  const std::string name = NameOf(files, "tokenizer_config.json");
  PENSTOCK_ASSIGN_OR_RETURN(const json root, ParseTokenizerObject(files.tokenizer_config, name));
  const ConfigFields config(root, absl::StrCat(name, ": "));
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<ConfigFields> list,
                            config.OptionalObject("added_tokens_decoder"));
  if (!list) return absl::OkStatus();
  for (const auto& [key, value] : list->object().items()) {
    AddedToken token;
    if (!absl::SimpleAtoi(key, &token.id) || token.id < 0 || token.id > kMaxTokenId ||
        !value.is_object()) {
      return list->Invalid(
          key, absl::StrCat("is no entry of an id, from 0 to ", kMaxTokenId, ", and a token"));
    }
    const ConfigFields entry(value, absl::StrCat(list->where(), key, "."));
    PENSTOCK_ASSIGN_OR_RETURN(token.content, entry.String("content"));
    PENSTOCK_ASSIGN_OR_RETURN(token.single_word, entry.Bool("single_word", false));
    PENSTOCK_ASSIGN_OR_RETURN(token.lstrip, entry.Bool("lstrip", false));
    PENSTOCK_ASSIGN_OR_RETURN(token.rstrip, entry.Bool("rstrip", false));
    PENSTOCK_ASSIGN_OR_RETURN(token.special, entry.Bool("special", false));
    tokens.Add(std::move(token));
  }
  return absl::OkStatus();
}

absl::Status ReadAddedTokensFile(const TokenizerFiles& files, Collection& tokens) {
  const std::string name = NameOf(files, "added_tokens.json");
  PENSTOCK_ASSIGN_OR_RETURN(const json root, ParseTokenizerObject(files.added_tokens, name));
  const ConfigFields list(root, absl::StrCat(name, ": "));
  for (const auto& [content, value] : root.items()) {
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t id, list.Integer(content, 0, kMaxTokenId));
    if (tokens.Has(content)) continue;
    tokens.Add({.id = static_cast<int32_t>(id), .content = content, .special = true});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<AddedToken>> ReadSentencePieceAddedTokens(
    const TokenizerFiles& files, const SentencePieceFile& file) {
  Collection tokens(file);
  PENSTOCK_RETURN_IF_ERROR(ReadDecoderTokens(files, tokens));
  PENSTOCK_RETURN_IF_ERROR(ReadAddedTokensFile(files, tokens));
  return std::move(tokens).Take();
}

}  // namespace penstock
