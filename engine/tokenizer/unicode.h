// What kind of character a code point is, as Hugging Face tokenizers sees it. That library mixes
// Unicode versions, and so does this (tests/reference/unicode_tables.py).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace penstock {

inline constexpr char32_t kCodePoints = 0x110000;

// Unicode's general categories, in the order of the generated table.
enum class Category : uint8_t {
  kCn,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo,
  kCs
};

// A set of categories, one bit each.
using CategorySet = uint32_t;

constexpr CategorySet CategoryBit(Category category) {
  return CategorySet{1} << static_cast<int>(category);
}

// "L", "Lu", "N" ... as in \p{L}; nullopt for names that are no general category.
std::optional<CategorySet> CategorySetOf(std::string_view name);

// One entry a code point.
std::span<const Category> Categories();

// REQUIRES of all: c < kCodePoints.
Category CategoryOf(char32_t c);
bool IsWhitespace(char32_t c);   // \s, White_Space
bool IsWord(char32_t c);         // \w of Rust's regex: beside an added token, and Whitespace
bool IsNumeric(char32_t c);      // Digits
bool IsPunctuation(char32_t c);  // Punctuation
bool IsMark(char32_t c);         // what StripAccents removes
// Characters that normalization leaves alone although newer versions of Unicode would not.
bool IsNormalizationInert(char32_t c);
// The lower case; U+0130 alone has two characters, "i" and U+0307.
char32_t LowercaseOf(char32_t c);

}  // namespace penstock
