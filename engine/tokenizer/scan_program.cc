#include "engine/tokenizer/scan_program.h"

#include "engine/base/utf8.h"

namespace penstock {

struct ScanProgram::Place {
  const char* end = nullptr;
  int64_t steps = 0;  // those that are left
};

const char* ScanProgram::MatchFrom(const Alternative& items, size_t index, const char* p,
                                   Place& place) const {
  if (index == items.size()) return p;
  const Item& item = items[index];
  switch (item.kind) {
    case Item::Kind::kRepeat:
      return MatchRepeat(items, index, p, place);
    case Item::Kind::kWords:
      return MatchWords(items, index, p, place);
    case Item::Kind::kNotAhead:
      break;
  }
  if (p < place.end) {
    const char* ahead = p;
    if (Is(NextUtf8(ahead), item.char_class)) return nullptr;
  }
  return MatchFrom(items, index + 1, p, place);
}

const char* ScanProgram::MatchRepeat(const Alternative& items, size_t index, const char* p,
                                     Place& place) const {
  const Item& item = items[index];
  int64_t count = 0;
  while (count < item.max && p < place.end) {
    const char* next = p;
    if (!Is(NextUtf8(next), item.char_class)) break;
    p = next;
    ++count;
  }
  place.steps -= count + 1;
  if (count < item.min) return nullptr;
  if (index + 1 == items.size()) return p;
  while (true) {
    if (const char* end = MatchFrom(items, index + 1, p, place)) return end;
    if (count == item.min || place.steps <= 0) return nullptr;
    PreviousUtf8(p);
    --count;
    --place.steps;
  }
}

const char* ScanProgram::MatchWords(const Alternative& items, size_t index, const char* p,
                                    Place& place) const {
  const Item& item = items[index];
  for (const std::vector<ClassId>& word : item.words) {
    const char* at = p;
    bool equal = true;
    for (size_t i = 0; equal && i < word.size(); ++i) {
      equal = at < place.end && Is(NextUtf8(at), word[i]);
    }
    --place.steps;
    if (!equal) continue;
    if (const char* end = MatchFrom(items, index + 1, at, place)) return end;
  }
  return item.min == 0 ? MatchFrom(items, index + 1, p, place) : nullptr;
}

const char* ScanProgram::MatchAt(const char* p, Place& place) const {
  const auto first = static_cast<unsigned char>(*p);
  const uint32_t possible = first < 0x80 ? ascii_first_[first] : ~uint32_t{0};
  for (size_t i = 0; i < alternatives_.size(); ++i) {
    if ((possible >> i & 1) == 0) continue;
    if (const char* end = MatchFrom(alternatives_[i], 0, p, place)) return end;
  }
  return nullptr;
}

std::optional<ScanProgram::Match> ScanProgram::Search(std::string_view text, size_t from,
                                                      int64_t& steps) const {
  Place place = {text.data() + text.size(), steps};
  std::optional<Match> match;
  for (const char* p = text.data() + from; p < place.end && place.steps > 0; NextUtf8(p)) {
    --place.steps;
    const char* const end = MatchAt(p, place);
    if (end == nullptr) continue;
    match = Match{static_cast<size_t>(p - text.data()), static_cast<size_t>(end - text.data())};
    break;
  }
  steps = match ? place.steps : std::min<int64_t>(place.steps, steps);
  return match;
}

}  // namespace penstock
