// UTF-8 as Unicode defines it: shortest forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace penstock {

// Length of the well-formed sequence at the head of `text`; 0 if there is none.
size_t Utf8SequenceLength(std::string_view text);

// Where the first byte stands that is not part of well-formed UTF-8; npos if there is none.
size_t FindInvalidUtf8(std::string_view text);

// `text` with U+FFFD for each maximal part that starts a character and does not finish it, and
// for each other wrong byte: the rule of the Unicode standard, Python and browsers.
std::string ReplaceInvalidUtf8(std::string_view text);

void AppendUtf8(char32_t c, std::string& out);

// Bytes of the character whose first byte is `lead`. REQUIRES: valid UTF-8.
inline int Utf8Length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

inline bool IsUtf8Continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// The character at `p`, which is moved behind it. REQUIRES: valid UTF-8, not at its end.
inline char32_t NextUtf8(const char*& p) {
  const auto at = [&](int i) { return static_cast<char32_t>(static_cast<unsigned char>(p[i])); };
  const char32_t lead = at(0);
  char32_t c = lead;
  int length = 1;
  if (lead >= 0xF0) {
    c = (lead & 0x07) << 18 | (at(1) & 0x3F) << 12 | (at(2) & 0x3F) << 6 | (at(3) & 0x3F);
    length = 4;
  } else if (lead >= 0xE0) {
    c = (lead & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F);
    length = 3;
  } else if (lead >= 0x80) {
    c = (lead & 0x1F) << 6 | (at(1) & 0x3F);
    length = 2;
  }
  p += length;
  return c;
}

// The character that ends before `p`, which is moved to its start. REQUIRES: valid UTF-8 before.
inline char32_t PreviousUtf8(const char*& p) {
  do --p;
  while (IsUtf8Continuation(*p));
  const char* start = p;
  return NextUtf8(start);
}

}  // namespace penstock
