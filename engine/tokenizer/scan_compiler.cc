// Reads a pattern of the dialect of scan_program.h. Whatever it is not sure about ends in "not in
// the dialect", which costs speed and nothing else.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "engine/base/utf8.h"
#include "engine/tokenizer/scan_program.h"
#include "engine/tokenizer/unicode.h"

namespace penstock {
namespace {

constexpr int64_t kUnlimited = int64_t{1} << 40;
constexpr int64_t kMaxCount = 1000;
constexpr size_t kMaxItems = 32;
constexpr size_t kCategories = static_cast<size_t>(Category::kCs) + 1;

// A set of characters as it stands in a pattern.
struct CharSet {
  std::vector<std::pair<char32_t, char32_t>> ranges = {};
  CategorySet categories = 0;
  CategorySet not_categories = 0;  // \P{..}: all that is in none of these, if not 0
  bool whitespace = false;         // \s
  bool not_whitespace = false;     // \S
  bool negated = false;

  bool operator<(const CharSet& other) const { return Key() < other.Key(); }

 private:
  std::tuple<decltype(ranges), CategorySet, CategorySet, bool, bool, bool> Key() const {
    return {ranges, categories, not_categories, whitespace, not_whitespace, negated};
  }
};

// Case-insensitive words are ASCII. Then a letter stands for its two cases and, for "s" and "k",
// one sign each that folds to it. Where two letters together fold to one sign ("ss" is "ß"), the
// word is outside the dialect.
CharSet AnyCase(char letter) {
  const auto lower = static_cast<char32_t>(letter | 0x20);
  CharSet set = {{{lower - 0x20, lower - 0x20}, {lower, lower}}};
  if (lower == 's') set.ranges.push_back({0x17F, 0x17F});
  if (lower == 'k') set.ranges.push_back({0x212A, 0x212A});
  return set;
}

bool HasFoldingPair(const std::string& lower) {
  for (const char* pair : {"ff", "fi", "fl", "ss", "st"}) {
    if (lower.find(pair) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

class ScanCompiler {
 public:
  explicit ScanCompiler(std::string_view pattern)
      : p_(pattern.data()), end_(pattern.data() + pattern.size()) {}

  std::unique_ptr<ScanProgram> Compile() {
    auto program = std::make_unique<ScanProgram>();
    do {
      ScanProgram::Alternative items;
      if (!ReadAlternative(items)) return nullptr;
      program->alternatives_.push_back(std::move(items));
      if (program->alternatives_.size() > ScanProgram::kMaxAlternatives) return nullptr;
    } while (Take("|"));
    if (p_ != end_) return nullptr;
    FillPages(*program);
    FillFirst(*program);
    return program;
  }

 private:
  using Item = ScanProgram::Item;
  using ClassId = ScanProgram::ClassId;

  bool Take(std::string_view what) {
    if (static_cast<size_t>(end_ - p_) < what.size()) return false;
    if (std::string_view(p_, what.size()) != what) return false;
    p_ += what.size();
    return true;
  }

  bool ReadAlternative(ScanProgram::Alternative& items) {
    int64_t shortest = 0;
    while (p_ < end_ && *p_ != '|') {
      Item item;
      if (!ReadItem(item) || items.size() == kMaxItems) return false;
      if (item.kind != Item::Kind::kNotAhead) shortest += item.min;
      items.push_back(std::move(item));
    }
    return shortest > 0;  // a match is never empty
  }

  bool ReadItem(Item& item) {
    if (Take("(?i:")) return ReadWords(item);
    CharSet set;
    if (Take("(?!")) {
      item.kind = Item::Kind::kNotAhead;
      return ReadSet(set) && Take(")") && Intern(set, item.char_class);
    }
    return ReadSet(set) && Intern(set, item.char_class) && ReadCounts(item);
  }

  // Up to the closing parenthesis, and a "?" behind it.
  bool ReadWords(Item& item) {
    item.kind = Item::Kind::kWords;
    do {
      std::string lower;
      std::vector<ClassId> word;
      while (p_ < end_ && *p_ != '|' && *p_ != ')') {
        const bool letter = (*p_ >= 'a' && *p_ <= 'z') || (*p_ >= 'A' && *p_ <= 'Z');
        if (!letter && *p_ != '\'' && *p_ != ' ') return false;
        const auto c = static_cast<char32_t>(*p_);
        ClassId id = 0;
        if (!Intern(letter ? AnyCase(*p_) : CharSet{{{c, c}}}, id)) return false;
        word.push_back(id);
        lower.push_back(static_cast<char>(*p_++ | 0x20));
      }
      if (word.empty() || word.size() > kMaxItems || HasFoldingPair(lower)) return false;
      item.words.push_back(std::move(word));
      if (item.words.size() > kMaxItems) return false;
    } while (Take("|"));
    if (!Take(")")) return false;
    if (Take("?")) item.min = 0;
    return !AtCount();
  }

  bool AtCount() const {
    return p_ < end_ && (*p_ == '?' || *p_ == '*' || *p_ == '+' || *p_ == '{');
  }

  bool ReadCounts(Item& item) {
    if (Take("?")) {
      item.min = 0;
    } else if (Take("*")) {
      item.min = 0;
      item.max = kUnlimited;
    } else if (Take("+")) {
      item.max = kUnlimited;
    } else if (Take("{")) {
      if (!ReadNumber(item.min)) return false;
      item.max = item.min;
      if (Take(",")) {
        if (p_ < end_ && *p_ == '}') {
          item.max = kUnlimited;
        } else if (!ReadNumber(item.max)) {
          return false;
        }
      }
      if (!Take("}") || item.max < item.min || item.max == 0) return false;
    }
    return !AtCount();  // lazy and possessive ones
  }

  bool ReadNumber(int64_t& number) {
    number = 0;
    const char* const start = p_;
    while (p_ < end_ && *p_ >= '0' && *p_ <= '9' && number <= kMaxCount) {
      number = number * 10 + (*p_++ - '0');
    }
    return p_ > start && number <= kMaxCount;
  }

  // One character, an escape or a bracket.
  bool ReadSet(CharSet& set) {
    if (p_ == end_) return false;
    if (Take("[")) return ReadBracket(set);
    if (*p_ == '\\') return ReadEscape(set);
    if (std::string_view("()|?*+{}^$.]&").find(*p_) != std::string_view::npos) return false;
    const char32_t c = NextUtf8(p_);
    set.ranges.push_back({c, c});
    return true;
  }

  bool ReadBracket(CharSet& set) {
    set.negated = Take("^");
    bool empty = true;
    while (p_ < end_ && *p_ != ']') {
      const bool intersection = *p_ == '&' && p_ + 1 < end_ && p_[1] == '&';
      if (*p_ == '[' || *p_ == '-' || intersection) return false;
      empty = false;
      const size_t ranges = set.ranges.size();
      if (*p_ == '\\') {
        if (!ReadEscape(set)) return false;
      } else {
        const char32_t c = NextUtf8(p_);
        set.ranges.push_back({c, c});
      }
      if (p_ < end_ && *p_ == '-') {
        if (set.ranges.size() == ranges || !ReadRangeEnd(set)) return false;
      }
    }
    return !empty && Take("]");
  }

  bool ReadRangeEnd(CharSet& set) {
    ++p_;
    if (p_ == end_ || *p_ == '[' || *p_ == ']' || *p_ == '\\' || *p_ == '-') return false;
    const char32_t last = NextUtf8(p_);
    if (last < set.ranges.back().first) return false;
    set.ranges.back().second = last;
    return true;
  }

  bool ReadEscape(CharSet& set) {
    ++p_;
    if (p_ == end_) return false;
    const char c = *p_++;
    const auto add = [&set](char32_t code) {
      set.ranges.push_back({code, code});
      return true;
    };
    switch (c) {
      case 's':
        return set.whitespace = true;
      case 'S':
        return set.not_whitespace = true;
      case 'd':
        set.categories |= CategoryBit(Category::kNd);
        return true;
      case 'r':
        return add('\r');
      case 'n':
        return add('\n');
      case 't':
        return add('\t');
      case 'p':
        return ReadProperty(set.categories);
      case 'P':
        return set.not_categories == 0 && ReadProperty(set.not_categories);
      default:
        if (std::string_view("\\.-[](){}*+?^$|/\"#&~!%,:;=@ ").find(c) == std::string_view::npos) {
          return false;
        }
        return add(static_cast<char32_t>(c));
    }
  }

  bool ReadProperty(CategorySet& categories) {
    if (!Take("{")) return false;
    const char* const start = p_;
    while (p_ < end_ && *p_ != '}') ++p_;
    const auto named = CategorySetOf(std::string_view(start, static_cast<size_t>(p_ - start)));
    if (!named) return false;
    categories |= *named;
    return Take("}");
  }

  bool Intern(const CharSet& set, ClassId& id) {
    const auto [it, added] = sets_.try_emplace(set, static_cast<ClassId>(sets_.size()));
    id = it->second;
    return sets_.size() <= ScanProgram::kMaxClasses;
  }

  // The sets by how they are made up, each as a bit set of classes.
  struct Makeup {
    std::array<uint32_t, kCategories> by_category = {};
    uint32_t whitespace = 0;
    uint32_t not_whitespace = 0;
    uint32_t negated = 0;
  };

  Makeup MakeupOfSets() const {
    Makeup makeup;
    for (const auto& [set, id] : sets_) {
      const uint32_t bit = uint32_t{1} << id;
      for (size_t i = 0; i < kCategories; ++i) {
        const CategorySet category = CategoryBit(static_cast<Category>(i));
        const bool in_rest = set.not_categories != 0 && (set.not_categories & category) == 0;
        if ((set.categories & category) != 0 || in_rest) makeup.by_category[i] |= bit;
      }
      if (set.whitespace) makeup.whitespace |= bit;
      if (set.not_whitespace) makeup.not_whitespace |= bit;
      if (set.negated) makeup.negated |= bit;
    }
    return makeup;
  }

  using Page = std::array<uint32_t, 256>;

  void AddRanges(char32_t first_of_page, Page& page) const {
    for (const auto& [set, id] : sets_) {
      for (const auto& [first, last] : set.ranges) {
        const char32_t begin = std::max(first, first_of_page);
        const char32_t end = std::min<char32_t>(last + 1, first_of_page + page.size());
        for (char32_t c = begin; c < end; ++c) page[c - first_of_page] |= uint32_t{1} << id;
      }
    }
  }

  // Most pages are all of one category and look alike.
  void FillPages(ScanProgram& program) const {
    const Makeup makeup = MakeupOfSets();
    std::map<Page, uint16_t> pages;
    Page page;
    for (size_t i = 0; i < program.page_of_.size(); ++i) {
      const auto first = static_cast<char32_t>(i * page.size());
      const auto categories = Categories().subspan(first, page.size());
      for (size_t j = 0; j < page.size(); ++j) {
        page[j] = makeup.by_category[static_cast<size_t>(categories[j])];
      }
      if (makeup.whitespace != 0 || makeup.not_whitespace != 0) {
        for (size_t j = 0; j < page.size(); ++j) {
          const bool space = IsWhitespace(first + static_cast<char32_t>(j));
          page[j] |= space ? makeup.whitespace : makeup.not_whitespace;
        }
      }
      AddRanges(first, page);
      for (uint32_t& bits : page) bits ^= makeup.negated;
      const auto [it, added] = pages.try_emplace(page, static_cast<uint16_t>(pages.size()));
      if (added) program.pages_.insert(program.pages_.end(), page.begin(), page.end());
      program.page_of_[i] = it->second;
    }
  }

  static void FillFirst(ScanProgram& program) {
    for (char32_t c = 0; c < 128; ++c) {
      for (size_t i = 0; i < program.alternatives_.size(); ++i) {
        if (CanStart(program, program.alternatives_[i], c)) {
          program.ascii_first_[c] |= uint32_t{1} << i;
        }
      }
    }
  }

  static bool CanStart(const ScanProgram& program, const ScanProgram::Alternative& items,
                       char32_t c) {
    for (const Item& item : items) {
      switch (item.kind) {
        case Item::Kind::kNotAhead:
          continue;
        case Item::Kind::kRepeat:
          if (program.Is(c, item.char_class)) return true;
          break;
        case Item::Kind::kWords:
          for (const auto& word : item.words) {
            if (program.Is(c, word.front())) return true;
          }
          break;
      }
      if (item.min > 0) return false;
    }
    return false;
  }

  const char* p_;
  const char* const end_;
  std::map<CharSet, ClassId> sets_;
};

std::unique_ptr<ScanProgram> ScanProgram::Compile(std::string_view pattern) {
  return ScanCompiler(pattern).Compile();
}

}  // namespace penstock
