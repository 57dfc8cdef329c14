#include "engine/cuda/cudnn_attention.h"

#include "engine/base/status.h"

namespace penstock::cuda {

absl::StatusOr<std::unique_ptr<CudnnAttention>> CudnnAttention::Create(cudaStream_t) {
  return Error(
      absl::StatusCode::kUnavailable, reason::kFeatureUnsupported,
      "this build has no cuDNN: its headers were not found; run tools/install_deps, install "
      "cuDNN's headers and build again");
}

}  // namespace penstock::cuda
