// Cutting a piece at matches, and what becomes of the matches: the behaviours of Split and
// Punctuation, on "the-final--countdown" with "-":
//
//   kRemoved             the final countdown
//   kIsolated            the - final - - countdown
//   kMergedWithPrevious  the- final- - countdown
//   kMergedWithNext      the -final - -countdown
//   kContiguous          the - final -- countdown
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/tokenizer/pattern.h"
#include "engine/tokenizer/piece.h"
#include "engine/tokenizer/pre_tokenizer.h"

namespace penstock {

enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

// Calls its argument with each match in the text, as Pattern::ForEachMatch() does.
using Matcher = absl::FunctionRef<absl::Status(Pattern::OnMatch)>;

// With `inverted`, what lies between matches counts as the match.
absl::Status SplitAtMatches(const Piece& piece, TextArena& arena, SplitBehavior behavior,
                            bool inverted, Matcher matcher, PieceSink sink);

}  // namespace penstock
