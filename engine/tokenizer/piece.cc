#include "engine/tokenizer/piece.h"

#include "engine/base/utf8.h"

namespace penstock {

CharSpan TextArena::SpanOf(const Piece& piece, size_t begin, size_t end) const {
  if (piece.spans != nullptr) return {piece.spans[begin].begin, piece.spans[end - 1].end};
  const auto base = static_cast<size_t>(piece.text.data() - original_.data());
  size_t first = base + begin;
  size_t last = base + end;
  while (IsUtf8Continuation(original_[first])) --first;
  while (last < original_.size() && IsUtf8Continuation(original_[last])) ++last;
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(last)};
}

Piece TextArena::Slice(const Piece& piece, size_t begin, size_t end) const {
  Piece slice = {piece.text.substr(begin, end - begin), nullptr, piece.origin};
  if (piece.spans != nullptr) slice.spans = piece.spans + begin;
  if (begin < end) slice.origin = SpanOf(piece, begin, end).begin;
  return slice;
}

void TextArena::Copy(const Piece& piece, size_t begin, size_t end, AlignedText& out) const {
  out.text.append(piece.text.substr(begin, end - begin));
  if (piece.spans != nullptr) {
    out.spans.insert(out.spans.end(), piece.spans + begin, piece.spans + end);
    return;
  }
  const char* const base = piece.text.data();
  const char* p = base + begin;
  while (p < base + end) {
    const auto length = static_cast<size_t>(Utf8Length(*p));
    const auto at = static_cast<uint32_t>(p - original_.data());
    out.spans.insert(out.spans.end(), length, {at, at + static_cast<uint32_t>(length)});
    p += length;
  }
}

}  // namespace penstock
