#include "bench/device_bench.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "engine/base/bf16.h"
#include "engine/base/check.h"
#include "engine/cuda/handle.h"
#include "engine/cuda/status.h"

namespace penstock {

void Check(const absl::Status& status) {
  PENSTOCK_CHECK(status.ok(), std::string(status.message()));
}
void Check(cudaError_t status) { Check(cuda::CudaStatus(status, "CUDA")); }

cuda::DeviceMemory Allocate(int64_t bytes) {
  auto memory = cuda::DeviceMemory::Allocate(bytes);
  Check(memory.status());
  return *std::move(memory);
}

void FillRandom(const cuda::DeviceMemory& memory) {
  std::vector<bf16> values(1 << 20);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (bf16& value : values) value = ToBf16(normal(random));
  const auto block = static_cast<int64_t>(values.size() * sizeof(bf16));
  for (int64_t at = 0; at < memory.bytes(); at += block) {
    Check(cudaMemcpy(memory.data() + at, values.data(), std::min(block, memory.bytes() - at),
                     cudaMemcpyHostToDevice));
  }
}

double MedianMs(cudaStream_t stream, int runs, int calls, absl::FunctionRef<void()> call) {
  auto start = cuda::CreateEvent(), end = cuda::CreateEvent();
  Check(start.status());
  Check(end.status());
  call();
  std::vector<float> times(runs);
  for (float& ms : times) {
    Check(cudaEventRecord(start->get(), stream));
    for (int i = 0; i < calls; ++i) call();
    Check(cudaEventRecord(end->get(), stream));
    Check(cudaEventSynchronize(end->get()));
    Check(cudaEventElapsedTime(&ms, start->get(), end->get()));
  }
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return times[runs / 2] / calls;
}

}  // namespace penstock
