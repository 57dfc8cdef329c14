// The alphabet in which byte-level vocabularies are written: each of the 256 bytes is a printable
// character. "Ġ" is a space, "Ċ" a line feed.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "engine/tokenizer/piece.h"

namespace penstock {

// The character that stands for each byte, as UTF-8.
const std::array<std::string, 256>& ByteCharacters();

// The bytes that `text` spells; nullopt if it has a character outside the alphabet.
std::optional<std::string> BytesSpelledBy(std::string_view text);

// The piece with every byte spelled out.
Piece SpellBytes(const Piece& piece, TextArena& arena);

}  // namespace penstock
