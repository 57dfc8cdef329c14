#include "engine/tokenizer/char_map.h"

#include <cstring>

#include "engine/base/utf8.h"

namespace penstock {
namespace {

// Real ones have a quarter of a megabyte.
constexpr size_t kMaxTrieBytes = size_t{4} << 20;

// A unit of the trie: the byte that leads to it, whether a string ends there, and where its
// children are, relative to itself.
uint32_t LabelOf(uint32_t unit) { return unit & 0x8000'00FFu; }
bool EndsString(uint32_t unit) { return (unit >> 8 & 1) != 0; }
size_t ChildrenOf(size_t at, uint32_t unit) {
  return at ^ (size_t{unit >> 10} << ((unit & 0x200u) >> 6));
}
size_t ValueOf(uint32_t unit) { return unit & 0x7FFF'FFFFu; }

}  // namespace

std::optional<CharMap> CharMap::Read(std::string_view blob) {
  uint32_t trie_bytes = 0;
  if (blob.size() <= sizeof(trie_bytes)) return std::nullopt;
  std::memcpy(&trie_bytes, blob.data(), sizeof(trie_bytes));
  blob.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes == 0 || trie_bytes % sizeof(uint32_t) != 0 || trie_bytes > kMaxTrieBytes ||
      trie_bytes >= blob.size()) {
    return std::nullopt;
  }
  CharMap map;
  map.units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), blob.data(), trie_bytes);
  map.replacements_ = blob.substr(trie_bytes);
  if (!map.IsSound()) return std::nullopt;
  return map;
}

bool CharMap::IsSound() const {
  if (replacements_.back() != '\0') return false;
  if (FindInvalidUtf8(replacements_) != std::string_view::npos) return false;
  std::vector<bool> seen(units_.size());
  std::vector<size_t> open = {0};
  seen[0] = true;
  while (!open.empty()) {
    const size_t at = open.back();
    open.pop_back();
    const size_t children = ChildrenOf(at, units_[at]);
    if ((children | 0xFF) >= units_.size()) return false;
    if (EndsString(units_[at])) {
      const size_t value = ValueOf(units_[children]);
      if (value >= replacements_.size() || IsUtf8Continuation(replacements_[value])) return false;
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      const size_t child = children ^ byte;
      if (LabelOf(units_[child]) != byte || seen[child]) continue;
      seen[child] = true;
      open.push_back(child);
    }
  }
  return true;
}

std::optional<CharMap::Rule> CharMap::Longest(std::string_view text) const {
  if (empty()) return std::nullopt;
  std::optional<Rule> longest;
  size_t children = ChildrenOf(0, units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t at = children ^ byte;
    const uint32_t unit = units_[at];
    if (LabelOf(unit) != byte) break;
    children = ChildrenOf(at, unit);
    const bool whole = i + 1 == text.size() || !IsUtf8Continuation(text[i + 1]);
    if (EndsString(unit) && whole) {
      longest = Rule{i + 1, replacements_.data() + ValueOf(units_[children])};
    }
  }
  return longest;
}

}  // namespace penstock
