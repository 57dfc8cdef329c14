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

std::optional<StringTrie::Found> StringTrie::Search(std::string_view text, size_t from) const {
  if (empty()) return std::nullopt;
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!first_[static_cast<unsigned char>(text[begin])]) continue;
    std::optional<Found> longest;
    uint64_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto child = children_.find(Edge(node, text[at]));
      if (child == children_.end()) break;
      node = child->second;
      if (const auto value = values_.find(node); value != values_.end()) {
        longest = Found{begin, at + 1, value->second};
      }
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace penstock
