// The "precompiled_charsmap" of a SentencePiece model: which strings of characters are written
// otherwise before text is cut into pieces (NFKC, mostly). The strings lie in a double-array trie,
// as the library darts-clone lays it out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

class CharMap {
 public:
  // Of nothing.
  CharMap() = default;

  // Nothing, if `blob` is broken: then every path through the trie was not proved to stay within
  // it, and every replacement to be UTF-8.
  static std::optional<CharMap> Read(std::string_view blob);

  struct Rule {
    size_t bytes = 0;  // how much of the text it replaces: whole characters
    std::string_view replacement = {};
  };
  // The longest that applies at the head of `text`.
  std::optional<Rule> Longest(std::string_view text) const;

  bool empty() const { return units_.empty(); }

 private:
  bool IsSound() const;

  std::vector<uint32_t> units_;
  std::string replacements_;  // each ends with a zero byte
};

}  // namespace penstock
