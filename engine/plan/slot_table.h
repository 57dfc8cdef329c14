// SlotTable: which streamed decoder block each device slot holds while a program is written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/base/ids.h"

namespace penstock {

class SlotTable {
 public:
  // `uses`: the blocks in the order in which they will be asked for.
  SlotTable(std::vector<BufferId> slots, std::vector<int32_t> uses)
      : slots_(std::move(slots)),
        held_(slots_.size(), -1),
        last_use_(slots_.size(), -1),
        uses_(std::move(uses)) {}

  struct Place {
    BufferId slot;
    bool fetch;  // false: the block is there already
  };

  // The slot for the next block of `uses`, which is `block`.
  Place Next(int32_t block) {
    ++position_;
    const auto found = std::find(held_.begin(), held_.end(), block);
    const bool fetch = found == held_.end();
    const size_t slot = fetch ? Victim() : static_cast<size_t>(found - held_.begin());
    held_[slot] = block;
    last_use_[slot] = position_;
    return {slots_[slot], fetch};
  }

 private:
  // The slot whose block is needed again last. Of several that are not needed again, the one that
  // was used longest ago: the latest is still being computed with, and a fetch would wait for it.
  size_t Victim() const {
    size_t victim = 0;
    for (size_t slot = 1; slot < slots_.size(); ++slot) {
      const int64_t next = NextUse(held_[slot]), best = NextUse(held_[victim]);
      if (next > best || (next == best && last_use_[slot] < last_use_[victim])) victim = slot;
    }
    return victim;
  }

  int64_t NextUse(int32_t block) const {
    const auto found = std::find(uses_.begin() + position_, uses_.end(), block);
    return block < 0 ? INT64_MAX : found - uses_.begin();
  }

  std::vector<BufferId> slots_;
  std::vector<int32_t> held_;      // block by slot, -1: nothing
  std::vector<int64_t> last_use_;  // position by slot
  std::vector<int32_t> uses_;
  int64_t position_ = 0;
};

}  // namespace penstock
