// How a SentencePiece model wants text: with "▁" for spaces, characters replaced, extra spaces
// gone.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/tokenizer/piece.h"
#include "engine/tokenizer/sentencepiece_file.h"
#include "engine/tokenizer/string_trie.h"

namespace penstock {

// What SentencePiece writes for a space.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

enum class DummyPrefix : uint8_t { kNo, kYes };

// Appends the rewritten `text` to `out`. `origin` is where `text` begins in the original, which
// the spans refer to. `protect` has strings that are never replaced.
void RewriteForSentencePiece(const SentencePieceRewriting& rewriting, const StringTrie& protect,
                             DummyPrefix prefix, std::string_view text, uint32_t origin,
                             AlignedText& out);

}  // namespace penstock
