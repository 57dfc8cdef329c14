// RoundToBf16 on CUDA: a thread rounds four neighbours, 16 bytes in and 8 out.
//
// In place one thread block does the first elements: it reads all of them before it writes. The
// rest follows in launches over ranges that double (round_ranges.h), each of which writes where
// the launches before it have read.
#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/round_gradients.h"
#include "engine/kernels/round_ranges.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 4;  // elements of a thread
constexpr int kFirstThreads = 1024;
constexpr int kFirstPerThread = 16;
constexpr int64_t kFirst = int64_t{kFirstThreads} * kFirstPerThread;

// `in` and `out` may share memory, so neither is __restrict__.
__global__ void __launch_bounds__(kFirstThreads)
    RoundFirstKernel(const float* in, bf16* out, int count) {
  float values[kFirstPerThread];
#pragma unroll
  for (int k = 0; k < kFirstPerThread; ++k) {
    const int i = k * kFirstThreads + static_cast<int>(threadIdx.x);
    values[k] = i < count ? in[i] : 0.0f;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kFirstPerThread; ++k) {
    const int i = k * kFirstThreads + static_cast<int>(threadIdx.x);
    if (i < count) out[i] = cuda::DeviceBf16(values[k]);
  }
}

// No element of the range shares a byte with a result of it. `kAligned`: both arrays allow the
// accesses of a group.
template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    RoundKernel(const float* __restrict__ in, bf16* __restrict__ out, int64_t count) {
  const int64_t stride = int64_t{gridDim.x} * kThreads * kGroup;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kGroup; i < count;
       i += stride) {
    if (kAligned && i + kGroup <= count) {
      const float4 raw = *reinterpret_cast<const float4*>(in + i);
      *reinterpret_cast<uint2*>(out + i) =
          make_uint2(cuda::Pack(raw.x, raw.y), cuda::Pack(raw.z, raw.w));
    } else {
      for (int64_t k = i; k < min(i + kGroup, count); ++k) out[k] = cuda::DeviceBf16(in[k]);
    }
  }
}

absl::Status Round(const cuda::Context& context, const float* in, bf16* out, int64_t count) {
  const unsigned grid = cuda::GridFor((count + kGroup - 1) / kGroup, kThreads);
  if (cuda::AllowsWide({in, out}, {})) {
    RoundKernel<true><<<grid, kThreads, 0, context.stream>>>(in, out, count);
  } else {
    RoundKernel<false><<<grid, kThreads, 0, context.stream>>>(in, out, count);
  }
  return cuda::LaunchStatus("RoundToBf16");
}

}  // namespace

absl::Status RoundToBf16(const cuda::Context& context, const float* in, bf16* out, int64_t count) {
  PENSTOCK_RETURN_IF_ERROR(CheckRoundToBf16(in, out, count));
  if (count == 0) return absl::OkStatus();
  if (static_cast<const void*>(in) != out) return Round(context, in, out, count);
  RoundFirstKernel<<<1, kFirstThreads, 0, context.stream>>>(
      in, out, static_cast<int>(std::min(count, kFirst)));
  PENSTOCK_RETURN_IF_ERROR(cuda::LaunchStatus("RoundToBf16"));
  return ForDoublingRanges(kFirst, count, [&](int64_t begin, int64_t end) {
    return Round(context, in + begin, out + begin, end - begin);
  });
}

}  // namespace penstock
