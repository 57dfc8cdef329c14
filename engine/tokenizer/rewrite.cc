#include "engine/tokenizer/rewrite.h"

#include "engine/base/status.h"
#include "engine/base/utf8.h"

namespace penstock {

Piece Prepend(std::string_view text, const Piece& piece, TextArena& arena) {
  if (piece.text.empty()) return piece;
  AlignedText& out = arena.New();
  const auto first = static_cast<size_t>(Utf8Length(piece.text[0]));
  out.Append(text, arena.SpanOf(piece, 0, first));
  arena.Copy(piece, 0, piece.text.size(), out);
  return TextArena::Replaced(piece, out);
}

absl::StatusOr<Piece> ReplaceAll(const Pattern& pattern, std::string_view content,
                                 const Piece& piece, TextArena& arena) {
  AlignedText* out = nullptr;
  size_t copied = 0;
  PENSTOCK_RETURN_IF_ERROR(pattern.ForEachMatch(piece.text, [&](size_t begin, size_t end) {
    if (out == nullptr) out = &arena.New();
    arena.Copy(piece, copied, begin, *out);
    // An empty match at the very start has nothing before it to stand for.
    const CharSpan span =
        end > 0 ? arena.SpanOf(piece, end - 1, end) : CharSpan{piece.origin, piece.origin};
    out->Append(content, span);
    copied = end;
    return absl::OkStatus();
  }));
  if (out == nullptr) return piece;
  arena.Copy(piece, copied, piece.text.size(), *out);
  return TextArena::Replaced(piece, *out);
}

}  // namespace penstock
