#include "engine/tokenizer/word_cache.h"

#include <xxhash.h>

#include <cstring>

namespace penstock {

// A word may be in two places, which are neighbours.
WordCache::WordCache() : entries_(kEntries) {}

bool WordCache::Find(std::string_view word, std::vector<WordToken>& tokens) const {
  if (word.size() > kMaxBytes) return false;
  const uint64_t hash = XXH3_64bits(word.data(), word.size());
  const size_t place = hash % kEntries;
  for (const size_t at : {place, place ^ 1}) {
    const Entry& entry = entries_[at];
    if (entry.hash != hash || entry.bytes != word.size()) continue;
    if (std::memcmp(entry.word, word.data(), word.size()) != 0) continue;
    for (size_t i = 0; i < entry.count; ++i) {
      tokens.push_back({entry.ids[i], entry.token_bytes[i]});
    }
    return true;
  }
  return false;
}

void WordCache::Insert(std::string_view word, std::span<const WordToken> tokens) {
  if (word.empty() || word.size() > kMaxBytes || tokens.size() > kMaxTokens) return;
  const uint64_t hash = XXH3_64bits(word.data(), word.size());
  Entry& entry = entries_[hash % kEntries];
  entries_[(hash % kEntries) ^ 1] = entry;
  entry.hash = hash;
  entry.bytes = static_cast<uint8_t>(word.size());
  entry.count = static_cast<uint8_t>(tokens.size());
  std::memcpy(entry.word, word.data(), word.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    entry.ids[i] = tokens[i].id;
    entry.token_bytes[i] = static_cast<uint8_t>(tokens[i].bytes);
  }
}

}  // namespace penstock
