#include "engine/plan/policy.h"

#include <algorithm>

namespace penstock {

void LetStatesPass(int64_t count, Policy& policy) {
  std::vector<size_t> layers;
  for (size_t block = 1; block + 1 < policy.placements.size(); ++block) {
    if (!policy.placements[block].state) layers.push_back(block);
  }
  const auto all = static_cast<int64_t>(layers.size());
  count = std::min(count, all);
  const int64_t from = std::max(count, all * 4 / 5);
  for (int64_t i = 1; i <= count; ++i) {
    policy.placements[layers[i * from / count - 1]].state_passes = true;
  }
}

bool HasHostSums(const Policy& policy, int64_t num_layers, int64_t micro_batches) {
  const int32_t round = policy.micro_batches_per_round;
  if (round == 0 || round + (policy.extra_in_first_round ? 1 : 0) >= micro_batches) return false;
  for (int64_t layer = 1; layer <= num_layers; ++layer) {
    if (!policy.PlacementOf(layer).gradients) return true;
  }
  return false;
}

}  // namespace penstock
