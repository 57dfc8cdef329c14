#include "engine/cuda/status.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock::cuda {
namespace {

struct Kind {
  absl::StatusCode code;
  std::string_view reason;
  const char* fault = nullptr;  // of DEVICE_FAILED
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
      return {absl::StatusCode::kUnavailable, reason::kDeviceUnavailable};
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorContained:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:  // What a card that has fallen off the bus gives.
      return {absl::StatusCode::kUnavailable, reason::kDeviceFailed, "hardware"};
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
      return {absl::StatusCode::kUnavailable, reason::kDeviceFailed, "program"};
    default:
      return {absl::StatusCode::kInternal, reason::kInternal};
  }
}

const char* Advice(const Kind& kind) {
  if (kind.fault == nullptr) return "";
  return kind.fault == std::string_view("hardware")
             ? "; look for Xid lines in dmesg; the card may need a reset or a restart of the "
               "machine"
             : "; if it comes again on another card, it is a bug of ours: report it";
}

}  // namespace

absl::Status CudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) [[likely]] {
    return absl::OkStatus();
  }
  cudaGetLastError();  // The runtime keeps it and would report it again after the next launch.
  const Kind kind = KindOf(error);
  ErrorMetadata metadata = {{"cuda_error", cudaGetErrorName(error)}};
  if (kind.fault != nullptr) metadata["fault"] = kind.fault;
  return Error(
      kind.code, kind.reason,
      absl::StrCat(std::string(what), ": ", cudaGetErrorName(error), " (", static_cast<int>(error),
                   "), ", cudaGetErrorString(error), Advice(kind)),
      metadata);
}

absl::Status CublasStatus(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]] {
    return absl::OkStatus();
  }
  const cudaError_t pending = cudaPeekAtLastError();
  if (KindOf(pending).reason == reason::kDeviceFailed) return CudaStatus(pending, what);
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
