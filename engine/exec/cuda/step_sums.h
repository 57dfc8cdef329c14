// StepSums: the few numbers that a step adds up on the device and the host reads once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/ids.h"
#include "engine/base/status.h"
#include "engine/cuda/device_memory.h"
#include "engine/cuda/pinned_memory.h"
#include "engine/cuda/status.h"

namespace penstock {

// Layout: loss, labelled tokens, then a norm partial for each block; 8 bytes each.
class StepSums {
 public:
  static absl::StatusOr<StepSums> Create(int64_t num_blocks) {
    const int64_t bytes = (2 + num_blocks) * static_cast<int64_t>(sizeof(double));
    StepSums sums;
    PENSTOCK_ASSIGN_OR_RETURN(sums.device_, cuda::DeviceMemory::Allocate(bytes));
    PENSTOCK_ASSIGN_OR_RETURN(sums.host_, cuda::AllocatePinned(bytes));
    return sums;
  }

  absl::Status Clear(cudaStream_t stream) {
    return cuda::CudaStatus(cudaMemsetAsync(device_.data(), 0, device_.bytes(), stream),
                            "clearing of the step's sums");
  }
  // Waits; afterwards the host's numbers below are those of the device.
  absl::Status Read(cudaStream_t stream) {
    PENSTOCK_RETURN_IF_ERROR(
        cuda::CudaStatus(cudaMemcpyAsync(host_.get(), device_.data(), device_.bytes(),
                                         cudaMemcpyDeviceToHost, stream),
                         "reading of the step's sums"));
    return cuda::CudaStatus(cudaStreamSynchronize(stream), "reading of the step's sums");
  }

  // On the device.
  double* loss_sum() const { return reinterpret_cast<double*>(device_.data()); }
  int64_t* labelled_tokens() const { return reinterpret_cast<int64_t*>(device_.data()) + 1; }
  double* norm_partial(BlockId block) const { return loss_sum() + 2 + Index(block); }

  // On the host.
  double host_loss_sum() const { return *reinterpret_cast<const double*>(host_.get()); }
  int64_t host_labelled_tokens() const {
    return *(reinterpret_cast<const int64_t*>(host_.get()) + 1);
  }
  double host_sum_of_squares() const {
    const double* partials = reinterpret_cast<const double*>(host_.get()) + 2;
    const int64_t count = device_.bytes() / static_cast<int64_t>(sizeof(double)) - 2;
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += partials[i];
    return sum;
  }

 private:
  cuda::DeviceMemory device_;
  cuda::PinnedBuffer host_;
};

}  // namespace penstock
