// Text on its way to tokens. The pipeline cuts a text into pieces and rewrites some of them; every
// byte of a piece knows the characters of the original that it stands for.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// Bytes [begin, end) of the original. 32 bits: one of these is kept for every rewritten byte.
struct CharSpan {
  uint32_t begin = 0;
  uint32_t end = 0;
};

inline constexpr int64_t kMaxEncodeBytes = int64_t{1} << 30;

struct Piece {
  std::string_view text = {};
  const CharSpan* spans = nullptr;  // one a byte of `text`; null: `text` lies in the original
  uint32_t origin = 0;              // where the piece's share of the original begins
};

// Text that was rewritten.
struct AlignedText {
  std::string text = {};
  std::vector<CharSpan> spans = {};  // one a byte of `text`

  // All bytes of `addition` stand for `span`.
  void Append(std::string_view addition, CharSpan span) {
    text.append(addition);
    spans.insert(spans.end(), addition.size(), span);
  }
};

// The original and whatever was rewritten for one Encode() call.
class TextArena {
 public:
  explicit TextArena(std::string_view original) : original_(original) {}

  std::string_view original() const { return original_; }
  Piece Whole() const { return {original_, nullptr, 0}; }

  // Valid as long as the arena.
  AlignedText& New() { return rewritten_.emplace_back(); }

  // What the non-empty part [begin, end) of the piece's text stands for, in whole characters.
  CharSpan SpanOf(const Piece& piece, size_t begin, size_t end) const;

  // The part [begin, end) of a piece.
  Piece Slice(const Piece& piece, size_t begin, size_t end) const;

  // The whole of `rewritten`, in place of `piece`.
  static Piece Replaced(const Piece& piece, const AlignedText& rewritten) {
    return {rewritten.text, rewritten.spans.data(), piece.origin};
  }

  // Appends the part [begin, end) of the piece's text, with its spans.
  void Copy(const Piece& piece, size_t begin, size_t end, AlignedText& out) const;

 private:
  std::string_view original_;
  std::deque<AlignedText> rewritten_;
};

}  // namespace penstock
