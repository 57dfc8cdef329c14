// The tokenizer of a SentencePiece .model file, bpe or unigram. Text goes through
//
//   added tokens  ->  rewriting  ->  pieces  ->  bytes of characters that no piece has
//
// Ids are those of the sentencepiece library, between added tokens. Spans differ from the library's
// in what Encoding promises: where several tokens share a character (its bytes, or what it was
// rewritten to), all of them have it, where the library gives it to the last. A token that stands
// for no more than the space before the text has an empty span.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/model_tokenizer.h"
#include "engine/tokenizer/piece_cutter.h"
#include "engine/tokenizer/sentencepiece_file.h"
#include "engine/tokenizer/string_trie.h"

namespace penstock {

// What tokenizer_config.json says about SentencePiece models; absent fields are as transformers'
// LlamaTokenizer takes them.
struct SentencePieceOptions {
  bool prefix_each_part = true;  // "legacy": text after an added token gets its dummy prefix, too
  bool prefix_start = true;      // "legacy" or "add_prefix_space"
};

class SentencePieceTokenizer final : public ModelTokenizer {
 public:
  // As ModelTokenizer::Create(). REQUIRES: files.sentencepiece_model is not empty.
  static absl::StatusOr<std::unique_ptr<ModelTokenizer>> Create(const TokenizerFiles& files);

  absl::Status EncodeWithSpans(std::string_view text, const EncodeOptions& options,
                               Encoding& encoding) const override;
  absl::Status EncodeIds(std::string_view text, const EncodeOptions& options,
                         std::vector<int32_t>& ids) const override;
  std::string Decode(std::span<const int32_t> ids, SpecialIds special_ids) const override;
  std::optional<int32_t> TokenToId(std::string_view token) const override;
  std::optional<std::string> IdToToken(int32_t id) const override;
  std::span<const AddedToken> added_tokens() const override { return added_.tokens(); }
  const SpecialTokenNames& special_tokens() const override { return names_; }
  int64_t vocab_size() const override;
  std::string fingerprint() const override { return fingerprint_; }

 private:
  class Run;

  SentencePieceTokenizer(SentencePieceFile file, AddedTokens added, SentencePieceOptions options);
  absl::Status ReadNames(const TokenizerFiles& files);

  const SentencePieceFile file_;
  const AddedTokens added_;
  const SentencePieceOptions options_;
  absl::flat_hash_map<absl::string_view, int32_t> ids_;  // keys lie in file_
  StringTrie user_defined_;
  std::array<int32_t, 256> byte_ids_ = {};  // of byte_fallback
  std::unique_ptr<const PieceCutter> cutter_;
  SpecialTokenNames names_;
  std::string fingerprint_;
};

}  // namespace penstock
