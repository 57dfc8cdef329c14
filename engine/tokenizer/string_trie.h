// Finds which of many strings stands at a place of a text, the longest if there are several.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/container/flat_hash_map.h"

namespace penstock {

class StringTrie {
 public:
  // False if `text` is empty or there already.
  bool Insert(std::string_view text, int64_t value);

  struct Found {
    size_t begin = 0;
    size_t end = 0;
    int64_t value = 0;
  };
  // The first place at or after `from` where one of the strings stands.
  std::optional<Found> Search(std::string_view text, size_t from) const;

  // The longest of the strings that stand at `at`.
  std::optional<Found> LongestAt(std::string_view text, size_t at) const;

  // Calls `on_found` with every string that stands at `at`, the shortest first.
  template <typename OnFound>
  void ForEachAt(std::string_view text, size_t at, OnFound on_found) const {
    uint64_t node = 0;
    for (size_t end = at; end < text.size();) {
      const auto child = children_.find(Edge(node, text[end]));
      if (child == children_.end()) return;
      node = child->second;
      ++end;
      if (const auto value = values_.find(node); value != values_.end()) {
        on_found(Found{at, end, value->second});
      }
    }
  }

  bool empty() const { return values_.empty(); }

 private:
  static uint64_t Edge(uint64_t node, char byte) {
    return node << 8 | static_cast<unsigned char>(byte);
  }

  // Node 0 is the root.
  absl::flat_hash_map<uint64_t, uint64_t> children_;
  absl::flat_hash_map<uint64_t, int64_t> values_;  // of nodes where a string ends
  std::array<bool, 256> first_ = {};
  uint64_t nodes_ = 1;
};

}  // namespace penstock
