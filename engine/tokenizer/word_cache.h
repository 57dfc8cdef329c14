// What short words were encoded to. Text repeats its words: with this, most are not merged again.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/tokenizer/bpe_merges.h"

namespace penstock {

// A fixed number of entries, a cache line each; new words displace old ones. One user at a time.
class WordCache {
 public:
  WordCache();

  // Appends the tokens of `word` and returns true if they are known.
  bool Find(std::string_view word, std::vector<WordToken>& tokens) const;

  // Remembers a word that Find() did not know, if it is small enough.
  void Insert(std::string_view word, std::span<const WordToken> tokens);

 private:
  static constexpr size_t kEntries = size_t{1} << 16;
  static constexpr size_t kMaxBytes = 22;
  static constexpr size_t kMaxTokens = 6;

  struct alignas(64) Entry {
    uint64_t hash = 0;
    uint8_t bytes = 0;  // 0: empty
    uint8_t count = 0;
    char word[kMaxBytes] = {};
    int32_t ids[kMaxTokens] = {};
    uint8_t token_bytes[kMaxTokens] = {};
  };

  std::vector<Entry> entries_;
};

}  // namespace penstock
