// CUDA's and cuBLASLt's results as absl::Status.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"

namespace penstock::cuda {

// `what` names the call and its sizes: "cudaMalloc of 3.2 GiB".
//   out of memory -> ResourceExhausted / DEVICE_MEMORY_INSUFFICIENT
//   no device, driver or card lost -> Unavailable / DEVICE_UNAVAILABLE
//   anything else -> Internal: a bug of ours
absl::Status CudaStatus(cudaError_t error, std::string_view what);
absl::Status CublasStatus(cublasStatus_t status, std::string_view what);

// For right after a launch: the error of the launch itself, which is cleared.
absl::Status LaunchStatus(std::string_view kernel);

}  // namespace penstock::cuda
