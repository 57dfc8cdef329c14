#include "engine/cuda/status.h"
#include "engine/kernels/attention_sums_cuda.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock::cuda::attention {
namespace {

constexpr int kThreads = 256;

__device__ void LoadSum(const float* from, float (&to)[kWide]) {
#pragma unroll
  for (int i = 0; i < kWide; i += 4) {
    const float4 raw = *reinterpret_cast<const float4*>(from + i);
    to[i] = raw.x, to[i + 1] = raw.y, to[i + 2] = raw.z, to[i + 3] = raw.w;
  }
}

__global__ void AddPartKernel(const bf16* part, int64_t count, bool first, float* sum) {
  const int64_t step = int64_t{gridDim.x} * kThreads * kWide;
  for (int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide; at < count;
       at += step) {
    float values[kWide], old[kWide] = {};
    Load(part + at, values);
    if (!first) LoadSum(sum + at, old);
#pragma unroll
    for (int i = 0; i < kWide; ++i) values[i] += old[i];
#pragma unroll
    for (int i = 0; i < kWide; i += 4) {
      *reinterpret_cast<float4*>(sum + at + i) =
          make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
    }
  }
}

__global__ void RoundRowsKernel(const RoundRowsArgs args) {
  const int64_t step = int64_t{gridDim.x} * kThreads * kWide;
  for (int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide;
       at < args.rows * args.width; at += step) {
    float values[kWide];
    LoadSum(args.sum + at, values);
    Store(values, args.to + at / args.width * args.to_stride + at % args.width);
  }
}

}  // namespace

absl::Status AddPart(const bf16* part, int64_t count, bool first, float* sum, cudaStream_t stream) {
  AddPartKernel<<<GridFor(count / kWide, kThreads), kThreads, 0, stream>>>(part, count, first, sum);
  return LaunchStatus("attention: AddPart");
}

absl::Status RoundRows(const RoundRowsArgs& args, cudaStream_t stream) {
  RoundRowsKernel<<<GridFor(args.rows * args.width / kWide, kThreads), kThreads, 0, stream>>>(args);
  return LaunchStatus("attention: RoundRows");
}

}  // namespace penstock::cuda::attention
