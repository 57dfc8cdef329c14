// The tokenizer of a tokenizer.json. Text goes through
//
//   added tokens  ->  normalizer  ->  added tokens, normalized  ->  pre-tokenizer  ->  BPE
//
// piece by piece, and every piece knows where it came from; the post-processor has the last word.
// "truncation" and "padding" in the file are settings of some earlier use and are left alone.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/bpe_model.h"
#include "engine/tokenizer/decoder.h"
#include "engine/tokenizer/model_tokenizer.h"
#include "engine/tokenizer/normalizer.h"
#include "engine/tokenizer/post_processor.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/word_cache.h"

namespace penstock {

class JsonTokenizer final : public ModelTokenizer {
 public:
  // As ModelTokenizer::Create(). REQUIRES: files.tokenizer_json is not empty.
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
  int64_t vocab_size() const override { return vocab_size_; }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  // What one Encode() call writes to; kept for the next one.
  struct Worker {
    WordCache cache;
    BpeScratch scratch;
    std::vector<WordToken> word_tokens;
    std::vector<TokenMargins> margins;
  };
  class WorkerLease;
  class Run;

  JsonTokenizer(BpeModel model, Normalizers normalizers, AddedTokens added,
                PreTokenizers pre_tokenizers, PostProcessor post_processor, Decoder decoder);
  void ReadMargins();

  const BpeModel model_;
  const Normalizers normalizers_;
  const AddedTokens added_;
  const PreTokenizers pre_tokenizers_;
  const PostProcessor post_processor_;
  const Decoder decoder_;
  SpecialTokenNames names_;
  std::vector<TokenMargins> margins_;  // by id of the model; empty unless spans are trimmed
  int64_t vocab_size_ = 0;
  std::string fingerprint_;

  // std::mutex, not absl::Mutex: the thread sanitizer knows it without a rebuilt Abseil.
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Worker>> idle_workers_;  // guarded by mutex_
};

}  // namespace penstock
