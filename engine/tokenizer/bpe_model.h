// Byte-pair encoding: a word's characters are merged pair by pair, the pair of lowest rank first
// and the leftmost of equals. The "model" of a tokenizer.json of type BPE.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/config_fields.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/vocabulary.h"

namespace penstock {

// The tokens of one word. A token stands for the next `bytes` bytes of the word.
struct WordToken {
  int32_t id = 0;
  uint32_t bytes = 0;
};

// Memory that is used again from word to word.
class BpeScratch {
 private:
  friend class BpeModel;

  struct Symbol {
    int32_t id = 0;
    uint32_t bytes = 0;  // 0: merged into another
    int32_t previous = -1;
    int32_t next = -1;
  };
  struct Candidate {
    uint64_t rank_and_place = 0;
    int32_t merged = 0;
    bool operator>(const Candidate& other) const { return rank_and_place > other.rank_and_place; }
  };
  std::vector<Symbol> symbols_;
  std::vector<Candidate> queue_;
};

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
  struct Rule {
    uint32_t rank = 0;
    int32_t merged = 0;
  };

  explicit BpeModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  absl::Status ReadMerges(const ConfigFields& model);
  absl::Status AddMerge(const ConfigFields& model, uint32_t rank, std::string_view left,
                        std::string_view right);
  void ReadByteTokens();

  std::optional<int32_t> WholeWord(std::string_view word) const;
  void StartWithBytes(std::string_view word, BpeScratch& scratch) const;
  void StartWithCharacters(std::string_view word, BpeScratch& scratch) const;
  void Merge(BpeScratch& scratch) const;
  void Consider(BpeScratch& scratch, int32_t place) const;

  Vocabulary vocabulary_;
  absl::flat_hash_map<uint64_t, Rule> rules_;  // by the two ids
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
