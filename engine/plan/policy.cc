#include "engine/plan/policy.h"

#include <algorithm>

namespace penstock {

int32_t Policy::RoundSize(int32_t first, int32_t micro_batches) const {
  const int32_t left = micro_batches - first;
  if (micro_batches_per_round == 0) return left;
  const bool own = first == 0 && micro_batches_in_first_round > 0;
  return std::min(own ? micro_batches_in_first_round : micro_batches_per_round, left);
}

bool Policy::AllGradientsStay() const {
  return !placements.empty() &&
         std::all_of(placements.begin(), placements.end(),
                     [](const BlockPlacement& placement) { return placement.gradients; });
}

bool HasHostSums(const Policy& policy, int64_t num_layers, int64_t micro_batches) {
  if (policy.RoundSize(0, static_cast<int32_t>(micro_batches)) == micro_batches) return false;
  for (int64_t layer = 1; layer <= num_layers; ++layer) {
    if (!policy.PlacementOf(layer).gradients) return true;
  }
  return false;
}

}  // namespace penstock
