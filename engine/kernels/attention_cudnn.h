// Attention through cuDNN, which attention*_cuda.cu try first. Internal to them.
#pragma once

#include "absl/status/statusor.h"
#include "engine/kernels/attention.h"

namespace penstock::cuda::attention {

// Queues the op and returns true; or queues nothing and returns false where our own kernels are to
// run: no cuDNN in the context, document_starts not known on the host, an array that is not aligned
// to 16 bytes, a head_dim below 32 or above kLargestCudnnHeadDim, k and v (or a gradient and what
// it is of) with different strides, too little scratch, or a shape that cuDNN refuses. Documents
// too long for cuDNN's backward op go by blocks or, where they cannot (attention_calls.h), through
// our own kernel, one by one. The choice depends on shapes, strides and bytes of scratch, so it is
// the same at every step. REQUIRES: the op's contract has been checked.
absl::StatusOr<bool> ForwardByCudnn(const cuda::Context& context,
                                    const AttentionForwardArgs<bf16>& args);
absl::StatusOr<bool> BackwardByCudnn(const cuda::Context& context,
                                     const AttentionBackwardArgs<bf16>& args);

// Our own kernels.
absl::Status ForwardByKernel(const cuda::Context& context, const AttentionForwardArgs<bf16>& args);
absl::Status BackwardByKernels(const cuda::Context& context,
                               const AttentionBackwardArgs<bf16>& args);

}  // namespace penstock::cuda::attention
