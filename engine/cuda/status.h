// CUDA's and cuBLASLt's results as absl::Status.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <string_view>

#include "absl/status/status.h"

namespace penstock::cuda {

// `what` names the call and its sizes: "cudaMalloc of 3.2 GiB".
//   out of memory -> ResourceExhausted / DEVICE_MEMORY_INSUFFICIENT
//   no device, no driver, one too old, a card in use -> Unavailable / DEVICE_UNAVAILABLE
//   errors that end the context -> Unavailable / DEVICE_FAILED. Metadata `fault` is "hardware" for
//     what no program can cause (uncorrectable memory errors, a card off the bus) and "program"
//     for the rest (an illegal address, a launch that failed): that may be the card or may be us.
//   anything else -> Internal: a bug of ours
// Metadata `cuda_error` has CUDA's name of the error.
absl::Status CudaStatus(cudaError_t error, std::string_view what);
// Where a context has ended cuBLASLt only says that execution failed; then the error that ended it
// is given.
absl::Status CublasStatus(cublasStatus_t status, std::string_view what);

// For right after a launch: the error of the launch itself, which is cleared.
absl::Status LaunchStatus(std::string_view kernel);

}  // namespace penstock::cuda
