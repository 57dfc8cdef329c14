// Runs the decoder over a reference case without plan or executor: one micro-batch, all buffers at
// hand. Shows the maths alone, and the logits that a step never keeps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/plan/policy.h"
#include "tests/engine/nn/reference_case.h"

namespace penstock {

struct DecoderResult {
  double loss = 0;                                      // mean over the labelled tokens
  std::vector<float> logits;                            // [T, vocab]
  std::map<std::string, std::vector<float>> gradients;  // by parameter name
};

struct DecoderCut {
  int64_t head_chunk_rows = 0;  // of logits that exist at a time
  int64_t mlp_chunk_rows = 0;   // 0: all
  SaveLevel saved = SaveLevel::kAll;
};

// Internal if an op wrote beyond the bytes that the plan gives it.
absl::StatusOr<DecoderResult> RunDecoder(const ReferenceCase& reference, const DecoderCut& cut);

}  // namespace penstock
