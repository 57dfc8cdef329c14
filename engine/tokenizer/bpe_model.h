// Byte-pair encoding: a word's characters are merged pair by pair, the pair of lowest rank first
// and the leftmost of equals. The "model" of a tokenizer.json of type BPE.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/config_fields.h"
#include "engine/tokenizer/bpe_merges.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/vocabulary.h"

namespace penstock {

class BpeModel {
 public:
  // MODEL_UNSUPPORTED for dropout; MODEL_INVALID for merges of tokens that don't exist and the
  // like.
  static absl::StatusOr<BpeModel> Read(const ConfigFields& model);

  // Whether words may come as raw bytes in place of the characters that spell them, and from now
  // on do: if every byte has a token and nothing is added at the ends of words.
  bool CanTakeRawBytes() const;
  void TakeRawBytes() { spelling_ = ByteSpelling::kRaw; }

  // Appends the tokens of a word. O(n log n) in its bytes. REQUIRES: no more than kMaxEncodeBytes.
  void Encode(std::string_view word, BpeScratch& scratch, std::vector<WordToken>& tokens) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  explicit BpeModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  absl::Status ReadMerges(const ConfigFields& model);
  absl::Status AddMerge(const ConfigFields& model, uint32_t rank, std::string_view left,
                        std::string_view right);
  void ReadByteTokens();

  std::optional<int32_t> WholeWord(std::string_view word) const;
  void StartWithBytes(std::string_view word, BpeScratch& scratch) const;
  void StartWithCharacters(std::string_view word, BpeScratch& scratch) const;

  Vocabulary vocabulary_;
  BpeMerges merges_;
  ByteSpelling spelling_ = ByteSpelling::kSpelled;
  bool ignore_merges_ = false;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  std::optional<int32_t> unknown_;
  std::string continuing_prefix_;
  std::string end_suffix_;
  std::array<int32_t, 256> spelled_bytes_ = {};   // ids of the byte alphabet's characters, or -1
  std::array<int32_t, 256> fallback_bytes_ = {};  // ids of <0x00> to <0xFF>, or -1
};

}  // namespace penstock
