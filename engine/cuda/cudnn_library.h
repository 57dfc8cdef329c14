// libcudnn.so.9, loaded at run time. cudnn_library.cc defines the functions of cuDNN's API that we
// and its frontend headers call; each passes the call on to the library.
#pragma once

#include <cudnn.h>

#include <memory>
#include <string_view>

#include "absl/status/status.h"

namespace penstock::cuda {

// Unavailable, with the loader's words, if the library cannot be loaded. Until this has been OK,
// the functions answer CUDNN_STATUS_NOT_INITIALIZED.
absl::Status LoadCudnn();

absl::Status CudnnStatus(cudnnStatus_t status, std::string_view what);

}  // namespace penstock::cuda
