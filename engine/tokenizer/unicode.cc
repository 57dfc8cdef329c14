#include "engine/tokenizer/unicode.h"

#include <utf8proc.h>

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/tokenizer/unicode_tables.h"

namespace penstock {
namespace {

constexpr std::string_view kNames[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                       "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                       "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs"};

enum Property : uint8_t {
  kWhitespace = 1,
  kWord = 2,
  kNumeric = 4,
  kPunctuation = 8,
  kMark = 16,
  kInert = 32,
};

// One entry a code point: looked up for every character of every text.
struct Tables {
  std::vector<Category> categories;
  std::vector<uint8_t> properties;
  absl::flat_hash_map<char32_t, char32_t> lowercase;
};

void Toggle(Tables& tables, Property property, const CodePointRange* ranges, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    for (uint32_t c = ranges[i].first; c <= ranges[i].last; ++c) tables.properties[c] ^= property;
  }
}

uint8_t PropertiesByCategory(Category category) {
  const std::string_view name = kNames[static_cast<int>(category)];
  const char major = name[0];
  uint8_t properties = 0;
  if (major == 'L' || major == 'M' || name == "Nd" || name == "Nl" || name == "Pc") {
    properties |= kWord;
  }
  if (major == 'N') properties |= kNumeric;
  if (major == 'P') properties |= kPunctuation;
  if (major == 'M') properties |= kMark;
  if (major == 'Z') properties |= kWhitespace;
  return properties;
}

Tables MakeTables() {
  Tables tables = {std::vector<Category>(kCodePoints), std::vector<uint8_t>(kCodePoints), {}};
  for (int64_t i = 0; i < kCategoryRunsCount; ++i) {
    const uint32_t begin = kCategoryRuns[i] / 32;
    const uint32_t end = i + 1 < kCategoryRunsCount ? kCategoryRuns[i + 1] / 32 : kCodePoints;
    const auto category = static_cast<Category>(kCategoryRuns[i] % 32);
    for (uint32_t c = begin; c < end; ++c) {
      tables.categories[c] = category;
      tables.properties[c] = PropertiesByCategory(category);
    }
  }
  for (const char c : std::string_view("$+<=>^`|~")) {  // symbols, but ASCII punctuation
    tables.properties[static_cast<unsigned char>(c)] |= kPunctuation;
  }
  for (const char32_t c : {U'\t', U'\n', U'\v', U'\f', U'\r', char32_t{0x85}}) {
    tables.properties[c] |= kWhitespace;
  }
  Toggle(tables, kWord, kWordExceptions, kWordExceptionsCount);
  Toggle(tables, kNumeric, kNumericExceptions, kNumericExceptionsCount);
  Toggle(tables, kPunctuation, kPunctuationExceptions, kPunctuationExceptionsCount);
  Toggle(tables, kMark, kMarkExceptions, kMarkExceptionsCount);
  Toggle(tables, kInert, kNormalizationInert, kNormalizationInertCount);
  for (int64_t i = 0; i < kLowercaseExceptionsCount; ++i) {
    tables.lowercase[kLowercaseExceptions[i].from] = kLowercaseExceptions[i].to;
  }
  return tables;
}

const Tables& AllTables() {
  static const Tables* const tables = new Tables(MakeTables());  // never destroyed: no order
  return *tables;
}

bool Has(char32_t c, Property property) { return (AllTables().properties[c] & property) != 0; }

}  // namespace

std::optional<CategorySet> CategorySetOf(std::string_view name) {
  if (name.empty() || name.size() > 2) return std::nullopt;
  CategorySet set = 0;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i].substr(0, name.size()) == name) set |= CategoryBit(static_cast<Category>(i));
  }
  if (set == 0) return std::nullopt;
  return set;
}

std::span<const Category> Categories() { return AllTables().categories; }

Category CategoryOf(char32_t c) { return AllTables().categories[c]; }
bool IsWhitespace(char32_t c) { return Has(c, kWhitespace); }
bool IsWord(char32_t c) { return Has(c, kWord); }
bool IsNumeric(char32_t c) { return Has(c, kNumeric); }
bool IsPunctuation(char32_t c) { return Has(c, kPunctuation); }
bool IsMark(char32_t c) { return Has(c, kMark); }
bool IsNormalizationInert(char32_t c) { return Has(c, kInert); }

char32_t LowercaseOf(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
  const auto& exceptions = AllTables().lowercase;
  const auto it = exceptions.find(c);
  if (it != exceptions.end()) return it->second;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

}  // namespace penstock
