// Runs the decoder over a reference case without plan or executor: one micro-batch, everything
// saved, all buffers at hand. Shows the maths alone, and the logits that a step never keeps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/engine/nn/reference_case.h"

namespace penstock {

struct DecoderResult {
  double loss = 0;                                      // mean over the labelled tokens
  std::vector<float> logits;                            // [T, vocab]
  std::map<std::string, std::vector<float>> gradients;  // by parameter name
};

// `head_chunk_rows` rows of logits exist at a time.
absl::StatusOr<DecoderResult> RunDecoder(const ReferenceCase& reference, int64_t head_chunk_rows);

}  // namespace penstock
