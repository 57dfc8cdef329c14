#include "engine/plan/hazards.h"

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

constexpr int kResourceKinds = static_cast<int>(ResourceKind::kLoss) + 1;

void TakeLatest(LaneFrontier& into, const LaneFrontier& from) {
  for (int lane = 0; lane < kLaneCount; ++lane) into[lane] = std::max(into[lane], from[lane]);
}

}  // namespace

HazardTracker::HazardTracker(const StepProgram& program)
    : num_blocks_(std::max(1, program.num_blocks)),
      buffers_(program.buffers.size()),
      host_(static_cast<size_t>(kResourceKinds) * num_blocks_),
      overlapping_(program.buffers.size()) {
  // Sweep by offset, one arena after the other: a buffer overlaps those that started before and
  // have not ended.
  std::vector<int32_t> order(program.buffers.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const Buffer &left = program.buffers[a], &right = program.buffers[b];
    return std::pair(left.arena, left.offset) < std::pair(right.arena, right.offset);
  });
  std::vector<int32_t> open;
  for (int32_t id : order) {
    const Buffer& buffer = program.buffers[id];
    std::erase_if(open, [&](int32_t other) {
      const Buffer& before = program.buffers[other];
      return before.arena != buffer.arena || before.offset + before.bytes <= buffer.offset;
    });
    overlapping_[id].push_back(id);
    if (buffer.bytes == 0) continue;
    for (int32_t other : open) {
      overlapping_[id].push_back(other);
      overlapping_[other].push_back(id);
    }
    open.push_back(id);
  }
}

LaneFrontier HazardTracker::Predecessors(const Access& access) const {
  LaneFrontier latest = kNoOps;
  const auto add = [&](const LastUse& use) {
    TakeLatest(latest, use.writes);
    if (access.mode != AccessMode::kRead) TakeLatest(latest, use.reads);
  };
  if (access.kind != ResourceKind::kBuffer) {
    add(host_[HostIndex(access.kind, access.index)]);
    return latest;
  }
  for (int32_t other : overlapping_[access.index]) add(buffers_[other]);
  return latest;
}

void HazardTracker::Record(int32_t op, Lane lane, const Access& access) {
  LastUse& use = access.kind == ResourceKind::kBuffer ? buffers_[access.index]
                                                      : host_[HostIndex(access.kind, access.index)];
  if (access.mode != AccessMode::kWrite) use.reads[static_cast<int>(lane)] = op;
  if (access.mode != AccessMode::kRead) use.writes[static_cast<int>(lane)] = op;
}

void OrderClock::Merge(LaneFrontier& into, const LaneFrontier& from) { TakeLatest(into, from); }

void OrderClock::Absorb(LaneFrontier& clock, int32_t predecessor) {
  Merge(clock, before_[predecessor]);
  int32_t& own = clock[static_cast<int>(lanes_[predecessor])];
  own = std::max(own, predecessor);
}

void OrderClock::Append(const Op& op) {
  LaneFrontier clock = kNoOps;
  int32_t& last = last_on_lane_[static_cast<int>(op.lane)];
  if (last >= 0) Absorb(clock, last);
  for (OpId after : op.after) Absorb(clock, Index(after));
  last = static_cast<int32_t>(before_.size());
  before_.push_back(clock);
  lanes_.push_back(op.lane);
}

void OrderClock::AddToLast(int32_t predecessor) { Absorb(before_.back(), predecessor); }

void DeriveOrder(StepProgram& program) {
  HazardTracker tracker(program);
  OrderClock clock(program.ops.size());
  for (size_t i = 0; i < program.ops.size(); ++i) {
    Op& op = program.ops[i];
    op.after.clear();
    clock.Append(op);
    const AccessList accesses = AccessesOf(program, op);
    LaneFrontier needed = kNoOps;
    for (const Access& access : accesses) TakeLatest(needed, tracker.Predecessors(access));
    // Newest first: following a later op often implies the earlier ones.
    std::sort(needed.begin(), needed.end(), std::greater<>());
    for (int32_t predecessor : needed) {
      if (predecessor < 0 || clock.Follows(predecessor, program.ops[predecessor].lane)) continue;
      op.after.push_back(OpId{predecessor});
      clock.AddToLast(predecessor);
    }
    for (const Access& access : accesses) {
      tracker.Record(static_cast<int32_t>(i), op.lane, access);
    }
  }
}

}  // namespace penstock
