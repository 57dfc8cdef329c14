// What an op runs on, on a GPU (kernels/context.h has the words common to all backends).
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/cuda/cudnn_attention.h"
#include "engine/cuda/device_memory.h"
#include "engine/cuda/handle.h"
#include "engine/cuda/matmul.h"

namespace penstock::cuda {

// One stream and what its ops share. Ops queue on `stream` and return; as they run one after the
// other there, each may use the whole workspace. Not owned; one thread at a time.
struct Context {
  cudaStream_t stream;
  MatmulPlanner* matmul;
  CudnnAttention* cudnn;  // null: attention by our own kernels
  std::byte* workspace;   // device
  int64_t workspace_bytes;
};

// Owns what a Context points to.
class OwnedContext {
 public:
  // cuBLASLt asks for 32 MiB on Hopper; more lets sums over rows take more blocks.
  static constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;

  // On the current device. Unavailable without one. The first without cuDNN says so on stderr.
  static absl::StatusOr<std::unique_ptr<OwnedContext>> Create();

  const Context& get() const { return context_; }

 private:
  OwnedContext(Stream stream, CublasLt lt, std::unique_ptr<CudnnAttention> cudnn,
               DeviceMemory workspace);

  Stream stream_;
  DeviceMemory workspace_;
  MatmulPlanner matmul_;
  std::unique_ptr<CudnnAttention> cudnn_;  // or null
  Context context_;
};

}  // namespace penstock::cuda
