#include "engine/plan/policy.h"

namespace penstock {

bool HasHostSums(const Policy& policy, int64_t num_layers, int64_t micro_batches) {
  const int32_t round = policy.micro_batches_per_round;
  if (round == 0 || round + (policy.extra_in_first_round ? 1 : 0) >= micro_batches) return false;
  for (int64_t layer = 1; layer <= num_layers; ++layer) {
    if (!policy.PlacementOf(layer).gradients) return true;
  }
  return false;
}

}  // namespace penstock
