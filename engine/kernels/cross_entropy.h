// Cross-entropy of one chunk of tokens, and its gradient in the place of the logits.
//   loss[r]   = log sum_c exp(logits[r,c]) - logits[r, labels[r]]
//   gradient  logits[r,c] <- scale * (softmax(logits[r,:])[c] - (c == labels[r]))
// A row labelled kIgnoreLabel adds nothing to the sums and gets a zero gradient, whatever its
// logits are. The mean over a step's labelled tokens is the caller's: it passes 1 / (their
// count in the whole step) as scale and divides the sum once.
// Shapes    logits [rows, vocab]; labels [rows].
// Numerics  the maximum is subtracted first; sums in f64; exp within 2 ulp. On CUDA a row's sum is
//           f32 and the sum of losses f64.
// Needs     vocab >= 1; labels[r] is kIgnoreLabel or in [0, vocab), else InvalidArgument (CPU).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/base/labels.h"
#include "engine/kernels/context.h"

namespace penstock {

// kLoss leaves the logits as they are.
enum class CrossEntropyMode : uint8_t { kLoss, kLossAndGradient };

template <typename T>
struct CrossEntropyArgs {
  T* logits;
  const int32_t* labels;
  int64_t rows, vocab;
  float scale;               // of the gradient only
  double* loss_sum;          // added to
  int64_t* labelled_tokens;  // added to
  CrossEntropyMode mode;
};

absl::Status CrossEntropy(const cpu::Context& context, const CrossEntropyArgs<float>& args);

absl::Status CrossEntropy(const cuda::Context& context, const CrossEntropyArgs<bf16>& args);

}  // namespace penstock
