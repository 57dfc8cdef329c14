// A matcher for the patterns that language models split text with, many times as fast as a general
// engine and without its stack: alternatives of repeated character classes, such as
//
//   (?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+
//
// An alternative is a sequence of items: a class (or one character) repeated greedily, a
// case-insensitive group of ASCII words, or a look-ahead "not followed by this class". The first
// alternative that matches at a place wins, as in any backtracking engine. Patterns outside this
// dialect have no ScanProgram (engine/tokenizer/pattern.h takes Oniguruma for them); patterns in
// it match exactly as Oniguruma 6.9.10, of Unicode 16, does.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace penstock {

class ScanProgram {
 public:
  // Null if the pattern is outside the dialect.
  static std::unique_ptr<ScanProgram> Compile(std::string_view pattern);

  struct Match {
    size_t begin = 0;
    size_t end = 0;
  };
  // The first match that starts at `from` or later; it is never empty. `steps` counts down with
  // each character looked at; at 0 the search stops without a match.
  // REQUIRES: `text` is UTF-8 and `from` is the start of a character.
  std::optional<Match> Search(std::string_view text, size_t from, int64_t& steps) const;

 private:
  friend class ScanCompiler;

  using ClassId = uint8_t;
  static constexpr int kMaxClasses = 32;
  static constexpr int kMaxAlternatives = 32;

  struct Item {
    enum class Kind : uint8_t { kRepeat, kWords, kNotAhead };
    Kind kind = Kind::kRepeat;
    ClassId char_class = 0;                        // kRepeat, kNotAhead
    int64_t min = 1, max = 1;                      // kRepeat; kWords: min 0 makes it optional
    std::vector<std::vector<ClassId>> words = {};  // kWords: a class for each character
  };
  using Alternative = std::vector<Item>;

  struct Place;

  bool Is(char32_t c, ClassId id) const {
    return (pages_[page_of_[c >> 8] * size_t{256} + (c & 0xFF)] >> id & 1) != 0;
  }
  const char* MatchFrom(const Alternative& items, size_t index, const char* p, Place& place) const;
  const char* MatchRepeat(const Alternative& items, size_t index, const char* p,
                          Place& place) const;
  const char* MatchWords(const Alternative& items, size_t index, const char* p, Place& place) const;
  const char* MatchAt(const char* p, Place& place) const;

  std::vector<Alternative> alternatives_;
  // The classes that a character is in, as a bit set: pages of 256 characters, equal ones shared.
  std::vector<uint32_t> pages_;
  std::array<uint16_t, 0x110000 / 256> page_of_ = {};
  std::array<uint32_t, 128> ascii_first_ = {};  // the alternatives that can start with it
};

}  // namespace penstock
