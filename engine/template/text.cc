#include "engine/template/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "engine/template/special_cases.h"

namespace penstock::jinja {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

template <size_t n>
bool IsIn(const Range (&ranges)[n], char32_t code_point) {
  const Range* range =
      std::upper_bound(std::begin(ranges), std::end(ranges), code_point,
                       [](char32_t value, const Range& r) { return value < r.first; });
  return range != std::begin(ranges) && code_point <= std::prev(range)->last;
}

// Unicode's Other_Lowercase and Other_Uppercase, Numeric_Type=Digit: properties that utf8proc
// has no table for.
constexpr Range kOtherLowercase[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},    {0x2E0, 0x2E4},
    {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},   {0x1D78, 0x1D78},  {0x1D9B, 0x1DBF},
    {0x2071, 0x2071},   {0x207F, 0x207F},   {0x2090, 0x209C},   {0x2170, 0x217F},  {0x24D0, 0x24E9},
    {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},  {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
constexpr Range kOtherUppercase[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
constexpr Range kOtherDigits[] = {
    {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
    {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
    {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

utf8proc_category_t Category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

bool IsCased(char32_t code_point) {
  return IsLowercase(code_point) || IsUppercase(code_point) || IsTitlecase(code_point);
}

// Word_Break in {MidLetter, MidNumLet, Single_Quote}, or Mn, Me, Cf, Lm, Sk: skipped when looking
// for the neighbours of a capital sigma.
bool IsCaseIgnorable(char32_t code_point) {
  switch (Category(code_point)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      break;
  }
  constexpr char32_t kWordInner[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                     0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                     0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  return std::binary_search(std::begin(kWordInner), std::end(kWordInner), code_point);
}

// Moves back over one code point.
char32_t PreviousCodePoint(std::string_view text, size_t* position) {
  do {
    --*position;
  } while ((static_cast<unsigned char>(text[*position]) & 0xC0) == 0x80);
  size_t forward = *position;
  return NextCodePoint(text, &forward);
}

// Whether the capital sigma at `begin` ends a word: something cased before, nothing cased after.
bool IsFinalSigma(std::string_view text, size_t begin, size_t end) {
  bool cased_before = false;
  for (size_t at = begin; at > 0;) {
    const char32_t c = PreviousCodePoint(text, &at);
    if (IsCaseIgnorable(c)) continue;
    cased_before = IsCased(c);
    break;
  }
  if (!cased_before) return false;
  for (size_t at = end; at < text.size();) {
    const char32_t c = NextCodePoint(text, &at);
    if (!IsCaseIgnorable(c)) return !IsCased(c);
  }
  return true;
}

const SpecialCase* FindSpecialCase(char32_t code_point) {
  const SpecialCase* found =
      std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), code_point,
                       [](const SpecialCase& s, char32_t value) { return s.code_point < value; });
  return found != std::end(kSpecialCases) && found->code_point == code_point ? found : nullptr;
}

void AppendAll(const char32_t (&mapped)[3], std::string* out) {
  for (const char32_t c : mapped) {
    if (c != 0) AppendUtf8(c, out);
  }
}

void AppendUpper(char32_t c, std::string* out) {
  if (const SpecialCase* special = FindSpecialCase(c)) return AppendAll(special->upper, out);
  AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
}

void AppendTitle(char32_t c, std::string* out) {
  if (const SpecialCase* special = FindSpecialCase(c)) return AppendAll(special->title, out);
  AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
}

// The lower case of the code point at [begin, end) of `text`.
void AppendLower(std::string_view text, size_t begin, size_t end, char32_t c, std::string* out) {
  if (c == 0x3A3) return AppendUtf8(IsFinalSigma(text, begin, end) ? 0x3C2 : 0x3C3, out);
  if (c == 0x130) {  // The one special case of lower case: i and a combining dot above.
    AppendUtf8('i', out);
    return AppendUtf8(0x307, out);
  }
  AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

}  // namespace

size_t Utf8Length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  if (byte < 0x80) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

bool IsValidUtf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    if (bytes[at] < 0x80) {
      ++at;
      continue;
    }
    utf8proc_int32_t code_point;
    const utf8proc_ssize_t length =
        utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &code_point);
    if (length <= 0) return false;
    at += static_cast<size_t>(length);
  }
  return true;
}

int64_t CountCodePoints(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

char32_t NextCodePoint(std::string_view text, size_t* position) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[*position + i]));
  };
  const size_t length = std::min(Utf8Length(text[*position]), text.size() - *position);
  char32_t c = byte(0);
  if (length > 1) c &= 0x7Fu >> length;
  for (size_t i = 1; i < length; ++i) c = (c << 6) | (byte(i) & 0x3F);
  *position += length;
  return c;
}

void AppendUtf8(char32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
    return;
  }
  if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (c >> 6)));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | (c >> 12)));
    out->push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | (c >> 18)));
    out->push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3F)));
    out->push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
  }
  out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
}

size_t ByteOffset(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += Utf8Length(text[at]);
  return std::min(at, text.size());
}

size_t FindText(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  // std::string::find takes quadratic time on aaa...ab; this does not.
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsLineEnd(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool IsPrintable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsAlphabetic(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }
bool IsDigit(char32_t c) { return IsDecimal(c) || IsIn(kOtherDigits, c); }
bool IsLowercase(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LL || IsIn(kOtherLowercase, c);
}
bool IsUppercase(char32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LU || IsIn(kOtherUppercase, c);
}
bool IsTitlecase(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LT; }

std::string ToUpper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) AppendUpper(NextCodePoint(text, &at), &out);
  return out;
}

std::string ToLower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = NextCodePoint(text, &at);
    AppendLower(text, begin, at, c, &out);
  }
  return out;
}

std::string ToTitle(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = NextCodePoint(text, &at);
    if (in_word) {
      AppendLower(text, begin, at, c, &out);
    } else {
      AppendTitle(c, &out);
    }
    in_word = IsCased(c);
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = NextCodePoint(text, &at);
    if (begin == 0) {
      AppendTitle(c, &out);
    } else {
      AppendLower(text, begin, at, c, &out);
    }
  }
  return out;
}

namespace {

template <typename Drop>
std::string_view StripWhere(std::string_view text, Side side, const Drop& drop) {
  size_t begin = 0, end = text.size();
  while (side != Side::kRight && begin < end) {
    size_t next = begin;
    if (!drop(NextCodePoint(text, &next))) break;
    begin = next;
  }
  while (side != Side::kLeft && end > begin) {
    size_t previous = end;
    if (!drop(PreviousCodePoint(text, &previous))) break;
    end = previous;
  }
  return text.substr(begin, end - begin);
}

}  // namespace

std::string_view Strip(std::string_view text, Side side) {
  return StripWhere(text, side, [](char32_t c) { return IsSpace(c); });
}

std::string_view Strip(std::string_view text, Side side, std::string_view characters) {
  std::u32string set;
  for (size_t at = 0; at < characters.size();) set.push_back(NextCodePoint(characters, &at));
  return StripWhere(text, side, [&](char32_t c) { return set.find(c) != set.npos; });
}

}  // namespace penstock::jinja
