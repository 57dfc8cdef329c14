// Which checkpoints of a job stay. Pure functions over what is there.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace penstock {

struct RetentionRule {
  int64_t keep_last = 2;         // newest, at least 1
  int64_t keep_every_steps = 0;  // also those of steps that are multiples; 0: none
  // Also the newest whose step is a multiple of this, to which a run may roll back; 0: none.
  int64_t keep_newest_multiple_of = 0;
};

struct RetentionState {
  std::set<int64_t> steps;      // of complete checkpoints
  std::set<int64_t> held;       // pinned, or in use
  std::set<int64_t> best = {};  // whose evaluation is the lowest, now and to whoever rolls back
};

// The newest of these steps that is a multiple of `of`, or the newest of all if `of` is 0.
std::optional<int64_t> NewestMultiple(const std::set<int64_t>& steps, int64_t of);

// Steps to remove, oldest first. Never the newest.
std::vector<int64_t> ChooseRemovals(const RetentionRule& rule, const RetentionState& state);

}  // namespace penstock
