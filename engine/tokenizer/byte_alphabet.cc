#include "engine/tokenizer/byte_alphabet.h"

#include "engine/base/utf8.h"

namespace penstock {
namespace {

constexpr int kCharacters = 0x144;  // code points in use lie below

// Printable characters of Latin-1 stand for themselves, the others for U+0100 and up, in order.
bool IsItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

// The byte of each character of the alphabet; -1: none.
const std::array<int16_t, kCharacters>& ByteOfCharacter() {
  static const std::array<int16_t, kCharacters> bytes = [] {
    std::array<int16_t, kCharacters> result;
    result.fill(-1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      result[static_cast<size_t>(IsItself(byte) ? byte : next++)] = static_cast<int16_t>(byte);
    }
    return result;
  }();
  return bytes;
}

}  // namespace

const std::array<std::string, 256>& ByteCharacters() {
  static const auto* const characters = [] {
    auto* result = new std::array<std::string, 256>;
    for (size_t c = 0; c < kCharacters; ++c) {
      const int16_t byte = ByteOfCharacter()[c];
      if (byte >= 0) AppendUtf8(static_cast<char32_t>(c), (*result)[static_cast<size_t>(byte)]);
    }
    return result;
  }();
  return *characters;
}

std::optional<std::string> BytesSpelledBy(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (const char* p = text.data(); p < text.data() + text.size();) {
    const char32_t c = NextUtf8(p);
    const int16_t byte = c < kCharacters ? ByteOfCharacter()[c] : int16_t{-1};
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

Piece SpellBytes(const Piece& piece, TextArena& arena) {
  AlignedText& out = arena.New();
  for (size_t i = 0; i < piece.text.size(); ++i) {
    out.Append(ByteCharacters()[static_cast<unsigned char>(piece.text[i])],
               arena.SpanOf(piece, i, i + 1));
  }
  return TextArena::Replaced(piece, out);
}

}  // namespace penstock
