// Unicode's normal forms with the alignment that Hugging Face's library gives: which original
// characters each new one stands for. Unicode 9's data, as there.
#pragma once

#include <cstdint>

#include "engine/tokenizer/piece.h"

namespace penstock {

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// The piece in that form; the piece itself if it has it already, else text in `arena`.
Piece Normalize(NormalForm form, const Piece& piece, TextArena& arena);

}  // namespace penstock
