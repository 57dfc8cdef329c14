#include "engine/train/retention.h"

namespace penstock {

std::optional<int64_t> NewestMultiple(const std::set<int64_t>& steps, int64_t of) {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (of == 0 || *step % of == 0) return *step;
  }
  return std::nullopt;
}

std::vector<int64_t> ChooseRemovals(const RetentionRule& rule, const RetentionState& state) {
  std::vector<int64_t> removals;
  const std::optional<int64_t> rollback =
      rule.keep_newest_multiple_of > 0 ? NewestMultiple(state.steps, rule.keep_newest_multiple_of)
                                       : std::nullopt;
  int64_t newer = static_cast<int64_t>(state.steps.size());
  for (const int64_t step : state.steps) {
    --newer;
    const bool among_last = newer == 0 || newer < rule.keep_last;
    const bool among_every = rule.keep_every_steps > 0 && step % rule.keep_every_steps == 0;
    if (among_last || among_every || state.best.contains(step) || rollback == step ||
        state.held.contains(step)) {
      continue;
    }
    removals.push_back(step);
  }
  return removals;
}

}  // namespace penstock
