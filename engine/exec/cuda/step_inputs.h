// StepInputs: a step's ids, positions, labels and document starts on the device.
//
// The loader's arrays are host memory; kernels read device memory and cannot check it without a
// wait. So all of it is checked here and crosses the link once a step, through one locked buffer.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/cuda/device_memory.h"
#include "engine/cuda/pinned_memory.h"
#include "engine/nn/decoder.h"

namespace penstock {

struct InputLimits {
  int64_t tokens_per_micro_batch = 0;
  int64_t max_positions = 0;
  int64_t vocab_size = 0;
};

class StepInputs {
 public:
  explicit StepInputs(const InputLimits& limits) : limits_(limits) {}

  // Room for this many micro-batches. Not while a step runs.
  absl::Status Reserve(int64_t micro_batches);

  // Checks the batches and queues their copy. InvalidArgument, naming the micro-batch, the place,
  // the value and the limit; then nothing has been queued.
  // REQUIRES: the copy of the previous step is over.
  absl::Status Upload(cudaStream_t stream, std::span<const MicroBatchView> batches);

  // The batches of the last Upload, with device pointers.
  const MicroBatchView& batch(int32_t index) const { return views_[index]; }

 private:
  // A micro-batch's arrays lie one after the other; documents may be empty, one more than tokens.
  int64_t ints_per_batch() const { return 4 * limits_.tokens_per_micro_batch + 2; }
  absl::Status Check(int64_t index, const MicroBatchView& batch) const;
  void Stage(int64_t index, const MicroBatchView& batch);

  InputLimits limits_;
  cuda::PinnedBuffer staging_;
  cuda::DeviceMemory device_;
  std::vector<MicroBatchView> views_;
};

}  // namespace penstock
