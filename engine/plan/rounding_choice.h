// What of a policy changes rounding. A checkpoint's manifest has it, and a run that goes on keeps
// it: then it rounds as before, whatever else of its policy is another.
#pragma once

#include <cstdint>

#include "engine/plan/policy.h"

namespace penstock {

struct RoundingChoice {
  int64_t head_chunk_rows = 0;
  int64_t mlp_chunk_rows = 0;
  GradientType gradient_type = GradientType::kFloat32;
  // These change a bit only where a tied head adds to the embedding's gradient.
  int32_t micro_batches_per_round = 0;
  int32_t micro_batches_in_first_round = 0;

  bool operator==(const RoundingChoice&) const = default;
};

inline RoundingChoice RoundingOf(const Policy& policy) {
  return {.head_chunk_rows = policy.head_chunk_rows,
          .mlp_chunk_rows = policy.mlp_chunk_rows,
          .gradient_type = policy.gradient_type,
          .micro_batches_per_round = policy.micro_batches_per_round,
          .micro_batches_in_first_round = policy.micro_batches_in_first_round};
}

}  // namespace penstock
