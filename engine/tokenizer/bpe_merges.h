// The merging of byte-pair encoding: neighbouring symbols become one, the pair of lowest rank first
// and the leftmost of equals.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace penstock {

// The tokens of one word. A token stands for the next `bytes` bytes of the word.
struct WordToken {
  int32_t id = 0;
  uint32_t bytes = 0;
};

// One word on its way to tokens; memory that is used again from word to word.
class BpeScratch {
 public:
  void Clear() { symbols_.clear(); }
  bool empty() const { return symbols_.empty(); }
  void Add(int32_t id, uint32_t bytes) { symbols_.push_back({id, bytes}); }
  void AppendTokens(std::vector<WordToken>& tokens) const;

 private:
  friend class BpeMerges;

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

class BpeMerges {
 public:
  void Reserve(size_t rules) { rules_.reserve(rules); }

  // Of a pair that is added twice, the later rank counts.
  void Add(int32_t left, int32_t right, uint32_t rank, int32_t merged);

  // Merges the symbols of `scratch` until no pair has a rule. O(n log n) in their number.
  void Apply(BpeScratch& scratch) const;

 private:
  struct Rule {
    uint32_t rank = 0;
    int32_t merged = 0;
  };

  void Consider(BpeScratch& scratch, int32_t place) const;

  absl::flat_hash_map<uint64_t, Rule> rules_;  // by the two ids
};

}  // namespace penstock
