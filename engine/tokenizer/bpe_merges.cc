// Merging keeps the word as a linked list of symbols and the possible merges in a heap. A merge
// makes at most two new candidates, so n symbols cost O(n log n), be they one word of 10 MB. An
// entry of the heap may be out of date when it comes up; it is, unless the pair that now stands at
// its place still merges to the token that the entry names.
#include "engine/tokenizer/bpe_merges.h"

#include <algorithm>
#include <functional>

namespace penstock {
namespace {

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

void BpeScratch::AppendTokens(std::vector<WordToken>& tokens) const {
  for (const Symbol& symbol : symbols_) {
    if (symbol.bytes != 0) tokens.push_back({symbol.id, symbol.bytes});
  }
}

void BpeMerges::Add(int32_t left, int32_t right, uint32_t rank, int32_t merged) {
  rules_[PairKey(left, right)] = {rank, merged};
}

void BpeMerges::Consider(BpeScratch& scratch, int32_t place) const {
  const BpeScratch::Symbol& symbol = scratch.symbols_[static_cast<size_t>(place)];
  if (symbol.next < 0) return;
  const int32_t right = scratch.symbols_[static_cast<size_t>(symbol.next)].id;
  const auto rule = rules_.find(PairKey(symbol.id, right));
  if (rule == rules_.end()) return;
  const uint64_t key = uint64_t{rule->second.rank} << 32 | static_cast<uint32_t>(place);
  scratch.queue_.push_back({key, rule->second.merged});
}

void BpeMerges::Apply(BpeScratch& scratch) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols_;
  std::vector<BpeScratch::Candidate>& queue = scratch.queue_;
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
  queue.clear();
  for (int32_t i = 0; i < count; ++i) Consider(scratch, i);
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  const auto push = [&](int32_t place) {
    const size_t before = queue.size();
    Consider(scratch, place);
    if (queue.size() > before) std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const BpeScratch::Candidate best = queue.back();
    queue.pop_back();
    const auto place = static_cast<int32_t>(best.rank_and_place & 0xFFFFFFFF);
    BpeScratch::Symbol& left = symbols[static_cast<size_t>(place)];
    if (left.bytes == 0 || left.next < 0) continue;
    BpeScratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    const auto rule = rules_.find(PairKey(left.id, right.id));
    if (rule == rules_.end() || rule->second.merged != best.merged) continue;
    left.id = best.merged;
    left.bytes += right.bytes;
    left.next = right.next;
    right.bytes = 0;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = place;
    if (left.previous >= 0) push(left.previous);
    push(place);
  }
}

}  // namespace penstock
