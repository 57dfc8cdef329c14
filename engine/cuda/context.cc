#include "engine/cuda/context.h"

#include <cstdio>
#include <string>
#include <utility>

#include "engine/base/status.h"
#include "engine/cuda/status.h"

namespace penstock::cuda {
namespace {

// Null without cuDNN: everything runs then, but attention at about half the speed.
std::unique_ptr<CudnnAttention> CudnnOrNull(cudaStream_t stream) {
  auto cudnn = CudnnAttention::Create(stream);
  if (cudnn.ok()) return *std::move(cudnn);
  static const bool said = [&] {
    std::fprintf(stderr, "attention runs on built-in kernels, at about half of cuDNN's speed: %s\n",
                 std::string(cudnn.status().message()).c_str());
    return true;
  }();
  static_cast<void>(said);
  return nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OwnedContext>> OwnedContext::Create() {
  PENSTOCK_ASSIGN_OR_RETURN(Stream stream, CreateStream());
  cublasLtHandle_t handle = nullptr;
  PENSTOCK_RETURN_IF_ERROR(CublasStatus(cublasLtCreate(&handle), "cublasLtCreate"));
  CublasLt lt(handle);
  PENSTOCK_ASSIGN_OR_RETURN(DeviceMemory workspace, DeviceMemory::Allocate(kWorkspaceBytes));
  auto cudnn = CudnnOrNull(stream.get());
  return std::unique_ptr<OwnedContext>(
      new OwnedContext(std::move(stream), std::move(lt), std::move(cudnn), std::move(workspace)));
}

OwnedContext::OwnedContext(Stream stream, CublasLt lt, std::unique_ptr<CudnnAttention> cudnn,
                           DeviceMemory workspace)
    : stream_(std::move(stream)),
      workspace_(std::move(workspace)),
      matmul_(std::move(lt)),
      cudnn_(std::move(cudnn)),
      context_{stream_.get(), &matmul_, cudnn_.get(), workspace_.data(), workspace_.bytes()} {}

}  // namespace penstock::cuda
