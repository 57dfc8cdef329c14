// What benchmarks of device code share. What fails ends the program, with what failed.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/cuda/device_memory.h"

namespace penstock {

void Check(const absl::Status& status);
void Check(cudaError_t status);

cuda::DeviceMemory Allocate(int64_t bytes);

template <typename T>
T* Data(const cuda::DeviceMemory& memory) {
  return reinterpret_cast<T*>(memory.data());
}

// Normal values in bf16; a block of them over and over, as only their spread matters, for the power
// drawn too.
void FillRandom(const cuda::DeviceMemory& memory);

// Of one call, by events on the stream: the median of `runs`, each the mean of `calls`, after one
// call that is not counted.
double MedianMs(cudaStream_t stream, int runs, int calls, absl::FunctionRef<void()> call);

}  // namespace penstock
