// The table that holds the CUDA ops to the float64 references, like parity.h's for the CPU.
// parity_cuda_test.cc gives each row to ExpectParity.
//
// Inputs are rounded to bf16 before either side sees them, so a bound speaks of the op's own
// roundings: one of 2^-9 for an output stored as bf16, f32 sums for one stored as f32.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "engine/base/bf16.h"
#include "engine/base/check.h"
#include "engine/cuda/context.h"
#include "engine/cuda/device_memory.h"
#include "tests/engine/kernels/parity.h"

namespace penstock {

inline constexpr double kBf16Bound = 4.5e-3;     // a rounding to bf16, and what f32 adds
inline constexpr double kBf16SumBound = 6.5e-3;  // cuBLASLt may round before it adds a residual
inline constexpr double kFloatBound = 2e-5;      // sums in f32

struct CudaCase {
  std::string name;  // of letters, digits and _
  std::function<std::vector<Floats>(const cuda::Context&)> run;
  std::function<std::vector<reference::Doubles>()> expected;
  std::vector<double> tolerances;  // as ExpectClose takes them; one an output
};

inline void PrintTo(const CudaCase& one, std::ostream* out) { *out << one.name; }

std::vector<CudaCase> LinearCudaCases();
std::vector<CudaCase> NormCudaCases();
std::vector<CudaCase> PointwiseCudaCases();
std::vector<CudaCase> AttentionCudaCases();

// Random() at the values that bf16 has.
Floats RandomBf16(int64_t count, uint32_t seed, float deviation = 1.0f);

// An array on the device that starts as a copy of a host's.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    auto memory =
        cuda::DeviceMemory::Allocate(static_cast<int64_t>(std::max<size_t>(1, count_) * sizeof(T)));
    PENSTOCK_CHECK(memory.ok(), std::string(memory.status().message()));
    memory_ = *std::move(memory);
    Copy(memory_.data(), values.data(), cudaMemcpyHostToDevice);
    // A copy from pageable memory may still be under way, and the ops' stream does not wait for it.
    PENSTOCK_CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess, "copy failed");
  }

  T* data() const { return reinterpret_cast<T*>(memory_.data()); }

  // After all work on the device.
  std::vector<T> Download() const {
    PENSTOCK_CHECK(cudaDeviceSynchronize() == cudaSuccess, "a kernel failed");
    std::vector<T> values(count_);
    Copy(values.data(), memory_.data(), cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  void Copy(void* to, const void* from, cudaMemcpyKind kind) const {
    PENSTOCK_CHECK(cudaMemcpy(to, from, count_ * sizeof(T), kind) == cudaSuccess, "copy failed");
  }
  size_t count_;
  cuda::DeviceMemory memory_;
};

// bf16 on the device, floats on the host.
class DeviceBf16 {
 public:
  explicit DeviceBf16(const Floats& values) : array_(Round(values)) {}
  bf16* data() const { return array_.data(); }
  Floats Download() const;

 private:
  static std::vector<bf16> Round(const Floats& values);
  DeviceArray<bf16> array_;
};

using DeviceFloats = DeviceArray<float>;
using DeviceInts = DeviceArray<int32_t>;

// Runs a case twice, wants the same bits, and compares with what is expected.
void ExpectParity(const CudaCase& one, const cuda::Context& context);

// Null without a device: then the test skips itself.
std::unique_ptr<cuda::OwnedContext> ContextOrNull();

}  // namespace penstock
