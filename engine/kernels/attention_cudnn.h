// Attention through cuDNN, which attention*_cuda.cu try first. Internal to them.
#pragma once

#include "absl/status/statusor.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_calls.h"

namespace penstock::cuda::attention {

// Queues the op and returns true; or queues nothing and returns false where our own kernel is to
// run: no cuDNN in the context, document_starts not known on the host, a view that is not aligned
// to 16 bytes, a head_dim cuDNN is not tested with, too little scratch, or a shape that cuDNN
// refuses. The choice depends on the shape alone, so it is the same at every step.
// REQUIRES: the op's contract has been checked. score_bytes as in attention_calls.h.
absl::StatusOr<bool> ForwardByCudnn(const cuda::Context& context,
                                    const AttentionForwardArgs<bf16>& args);
absl::StatusOr<bool> BackwardByCudnn(const cuda::Context& context,
                                     const AttentionBackwardArgs<bf16>& args,
                                     int64_t score_bytes = penstock::attention::kScoreBytes);

}  // namespace penstock::cuda::attention
