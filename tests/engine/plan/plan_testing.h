// Small models and programs for the tests of plan/ and exec/.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/model/layout.h"
#include "engine/model/model_spec.h"
#include "engine/plan/train_program.h"

namespace penstock {

inline ModelSpec TinySpec(int64_t layers, HeadWeights head) {
  return {.family = "llama",
          .vocab_size = 40,
          .hidden_size = 16,
          .intermediate_size = 24,
          .num_layers = layers,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 4,
          .max_positions = 256,
          .rms_norm_eps = 1e-5,
          .attention_scale = 0.5,
          .rope = {.theta = 10000},
          .head = head,
          .window = std::vector<int64_t>(layers, 0)};
}

// The op of kind T that comes `nth` (from 0).
template <typename T>
int32_t FindOp(const StepProgram& program, int nth = 0) {
  for (size_t i = 0; i < program.ops.size(); ++i) {
    if (std::holds_alternative<T>(program.ops[i].body) && nth-- == 0) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

template <typename T>
T& OpBodyOf(StepProgram& program, int nth = 0) {
  return std::get<T>(program.ops[FindOp<T>(program, nth)].body);
}

}  // namespace penstock
