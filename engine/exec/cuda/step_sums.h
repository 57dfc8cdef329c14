// StepSums: the few numbers that a step adds up on the device and the host reads once.
//
// They lie in locked host memory, which kernels reach through the link: a sum's last thread adds
// to it there. A copy would have to wait behind the gradients that are leaving for the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/ids.h"
#include "engine/base/status.h"
#include "engine/cuda/pinned_memory.h"

namespace penstock {

// The host reads after it has waited for the kernels that add, and clears while none runs.
class StepSums {
 public:
  static absl::StatusOr<StepSums> Create(int64_t num_blocks) {
    StepSums sums;
    const int64_t bytes = (2 + num_blocks) * static_cast<int64_t>(sizeof(double));
    PENSTOCK_ASSIGN_OR_RETURN(sums.memory_, cuda::AllocatePinned(bytes));
    sums.num_blocks_ = num_blocks;
    sums.Clear();
    return sums;
  }

  void Clear() {
    *loss_sum() = 0;
    *labelled_tokens() = 0;
    std::fill_n(norm_partials(), num_blocks_, 0.0);
  }

  // For kernels and for the host.
  double* loss_sum() const { return reinterpret_cast<double*>(memory_.get()); }
  int64_t* labelled_tokens() const { return reinterpret_cast<int64_t*>(memory_.get()) + 1; }
  double* norm_partial(BlockId block) const { return norm_partials() + Index(block); }

  double sum_of_squares() const {
    double sum = 0;
    for (int64_t i = 0; i < num_blocks_; ++i) sum += norm_partials()[i];
    return sum;
  }

 private:
  double* norm_partials() const { return loss_sum() + 2; }
  cuda::PinnedBuffer memory_;
  int64_t num_blocks_ = 0;
};

}  // namespace penstock
