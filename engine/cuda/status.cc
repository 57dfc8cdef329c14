#include "engine/cuda/status.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock::cuda {
namespace {

struct Kind {
  absl::StatusCode code;
  std::string_view reason;
};

Kind KindOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return {absl::StatusCode::kResourceExhausted, reason::kDeviceMemoryInsufficient};
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorDevicesUnavailable:
    case cudaErrorInvalidDevice:
    case cudaErrorDeviceUninitialized:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorContained:
    case cudaErrorUnknown:
      return {absl::StatusCode::kUnavailable, reason::kDeviceUnavailable};
    default:
      return {absl::StatusCode::kInternal, reason::kInternal};
  }
}

}  // namespace

absl::Status CudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) [[likely]] {
    return absl::OkStatus();
  }
  cudaGetLastError();  // The runtime keeps it and would report it again after the next launch.
  const Kind kind = KindOf(error);
  return Error(kind.code, kind.reason,
               absl::StrCat(std::string(what), ": ", cudaGetErrorName(error), ", ",
                            cudaGetErrorString(error)));
}

absl::Status CublasStatus(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]] {
    return absl::OkStatus();
  }
  const bool memory = status == CUBLAS_STATUS_ALLOC_FAILED;
  return Error(memory ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal,
               memory ? reason::kDeviceMemoryInsufficient : reason::kInternal,
               absl::StrCat(std::string(what), ": ", cublasLtGetStatusName(status), ", ",
                            cublasLtGetStatusString(status)));
}

absl::Status LaunchStatus(std::string_view kernel) {
  return CudaStatus(cudaGetLastError(), kernel);
}

}  // namespace penstock::cuda
