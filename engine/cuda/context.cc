#include "engine/cuda/context.h"

#include <utility>

#include "engine/base/status.h"
#include "engine/cuda/status.h"

namespace penstock::cuda {

absl::StatusOr<std::unique_ptr<OwnedContext>> OwnedContext::Create() {
  PENSTOCK_ASSIGN_OR_RETURN(Stream stream, CreateStream());
  cublasLtHandle_t handle = nullptr;
  PENSTOCK_RETURN_IF_ERROR(CublasStatus(cublasLtCreate(&handle), "cublasLtCreate"));
  CublasLt lt(handle);
  PENSTOCK_ASSIGN_OR_RETURN(DeviceMemory workspace, DeviceMemory::Allocate(kWorkspaceBytes));
  return std::unique_ptr<OwnedContext>(
      new OwnedContext(std::move(stream), std::move(lt), std::move(workspace)));
}

OwnedContext::OwnedContext(Stream stream, CublasLt lt, DeviceMemory workspace)
    : stream_(std::move(stream)),
      workspace_(std::move(workspace)),
      matmul_(std::move(lt)),
      context_{stream_.get(), &matmul_, workspace_.data(), workspace_.bytes()} {}

}  // namespace penstock::cuda
