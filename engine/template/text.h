// Strings as Python sees them: sequences of code points, here stored as UTF-8. Case mapping and
// character classes are those of Python's str methods (full mappings, final sigma included).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/string_view.h"

namespace penstock::jinja {

// Debian's absl::string_view is a type of its own.
inline absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

bool IsValidUtf8(std::string_view text);
int64_t CountCodePoints(std::string_view text);

// The code point at `*position`, which moves past it. REQUIRES: valid UTF-8, *position inside.
char32_t NextCodePoint(std::string_view text, size_t* position);
void AppendUtf8(char32_t code_point, std::string* out);
// Bytes of the code point that starts with `lead`.
size_t Utf8Length(char lead);
// The byte offset of code point `index`; the size of `text` if there are not that many.
size_t ByteOffset(std::string_view text, int64_t index);

// Where `part` first occurs in `text` at or after `from`, or npos; in linear time whatever both
// are.
size_t FindText(std::string_view text, std::string_view part, size_t from = 0);

// What str.isspace, str.strip and \s take for white space.
bool IsSpace(char32_t code_point);
// What ends a line for str.splitlines.
bool IsLineEnd(char32_t code_point);
// str.isprintable; repr() escapes the others.
bool IsPrintable(char32_t code_point);
bool IsAlphabetic(char32_t code_point);
bool IsDecimal(char32_t code_point);
bool IsDigit(char32_t code_point);
bool IsLowercase(char32_t code_point);
bool IsUppercase(char32_t code_point);
bool IsTitlecase(char32_t code_point);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToTitle(std::string_view text);     // str.title
std::string Capitalize(std::string_view text);  // str.capitalize

enum class Side { kLeft, kRight, kBoth };
// `text` without leading or trailing white space.
std::string_view Strip(std::string_view text, Side side);
// ... without the code points that occur in `characters`.
std::string_view Strip(std::string_view text, Side side, std::string_view characters);

}  // namespace penstock::jinja
