// Hazards between ops: who touched the same bytes last, and what an order implies.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/plan/accesses.h"

namespace penstock {

// For each lane the index of an op, -1 for none.
using LaneFrontier = std::array<int32_t, kLaneCount>;
inline constexpr LaneFrontier kNoOps = {-1, -1, -1, -1};

// Remembers, per resource, the last reader and writer on each lane. Lanes are ordered, so what
// follows the last one follows all. Buffers that share bytes are one resource to it.
class HazardTracker {
 public:
  // REQUIRES: buffer offsets and sizes are not negative.
  explicit HazardTracker(const StepProgram& program);

  // The last op of each lane that `access` must follow: writers before a read, readers and
  // writers before a write.
  LaneFrontier Predecessors(const Access& access) const;
  void Record(int32_t op, Lane lane, const Access& access);

  // Buffers that share bytes with `buffer`, itself included.
  const std::vector<int32_t>& Overlapping(int32_t buffer) const { return overlapping_[buffer]; }

 private:
  struct LastUse {
    LaneFrontier reads = kNoOps;
    LaneFrontier writes = kNoOps;
  };
  size_t HostIndex(ResourceKind kind, int32_t index) const {
    return static_cast<size_t>(kind) * num_blocks_ + index;
  }

  int32_t num_blocks_;
  std::vector<LastUse> buffers_;
  std::vector<LastUse> host_;  // by kind, then index
  std::vector<std::vector<int32_t>> overlapping_;
};

// For every op of a list whose `after` names earlier ops: the last op of each lane that has
// finished when it starts (its own lane's predecessor included).
class OrderClock {
 public:
  explicit OrderClock(size_t ops) { before_.reserve(ops); }

  // Call once per op in list order.
  void Append(const Op& op);
  // Adds one more predecessor to the op appended last.
  void AddToLast(int32_t predecessor);
  // Whether `earlier` has finished before the op appended last starts.
  bool Follows(int32_t earlier, Lane earlier_lane) const {
    return earlier <= before_.back()[static_cast<int>(earlier_lane)];
  }

 private:
  static void Merge(LaneFrontier& into, const LaneFrontier& from);
  void Absorb(LaneFrontier& clock, int32_t predecessor);

  std::vector<LaneFrontier> before_;  // by op
  std::vector<Lane> lanes_;
  LaneFrontier last_on_lane_ = kNoOps;
};

// Fills every op's `after` with the hazards of the list order, leaving out what lanes and other
// entries imply already. Overwrites what was there.
void DeriveOrder(StepProgram& program);

}  // namespace penstock
