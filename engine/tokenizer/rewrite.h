// Rewriting that normalizers and pre-tokenizers share.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/tokenizer/pattern.h"
#include "engine/tokenizer/piece.h"

namespace penstock {

// `text` before the piece; it stands for the piece's first character. An empty piece stays so.
Piece Prepend(std::string_view text, const Piece& piece, TextArena& arena);

// `content` for each match; it stands for the last character of the match.
absl::StatusOr<Piece> ReplaceAll(const Pattern& pattern, std::string_view content,
                                 const Piece& piece, TextArena& arena);

}  // namespace penstock
