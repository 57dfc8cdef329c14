#include "engine/tokenizer/string_trie.h"

namespace penstock {

bool StringTrie::Insert(std::string_view text, int64_t value) {
  if (text.empty()) return false;
  uint64_t node = 0;
  for (const char c : text) {
    const auto [it, added] = children_.try_emplace(Edge(node, c), nodes_);
    if (added) ++nodes_;
    node = it->second;
  }
  first_[static_cast<unsigned char>(text[0])] = true;
  return values_.try_emplace(node, value).second;
}

std::optional<StringTrie::Found> StringTrie::LongestAt(std::string_view text, size_t at) const {
  std::optional<Found> longest;
  if (!first_[static_cast<unsigned char>(text[at])]) return longest;
  ForEachAt(text, at, [&](const Found& found) { longest = found; });
  return longest;
}

std::optional<StringTrie::Found> StringTrie::Search(std::string_view text, size_t from) const {
  if (empty()) return std::nullopt;
  for (size_t at = from; at < text.size(); ++at) {
    if (const std::optional<Found> found = LongestAt(text, at)) return found;
  }
  return std::nullopt;
}

}  // namespace penstock
