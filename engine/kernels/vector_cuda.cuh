// Device helpers that the CUDA kernels share: bf16 in vectors, sums over a block, launch sizes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>

#include "engine/base/bf16.h"

namespace penstock::cuda {

inline constexpr int kWarp = 32;
// Elements that a thread moves at a time: 16 bytes, where alignment allows, else one.
inline constexpr int kWide = 8;

__device__ inline float DeviceFloat(bf16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}
__device__ inline bf16 DeviceBf16(float value) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}

// kWide elements as they lie in memory: half the registers that their values take.
using Packed = uint4;

__device__ inline void Unpack(const Packed& packed, float (&to)[kWide]) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __uint_as_float(words[i] << 16);
    to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

// REQUIRES: `from` aligned to its 16 bytes.
__device__ inline Packed LoadPacked(const bf16* from) {
  return *reinterpret_cast<const Packed*>(from);
}

// REQUIRES: `from` and `to` aligned to 2 * kCount bytes.
template <int kCount>
__device__ inline void Load(const bf16* from, float (&to)[kCount]) {
  if constexpr (kCount == kWide) {
    Unpack(LoadPacked(from), to);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = DeviceFloat(from[i]);
  }
}

// Two floats as the halves of a word, the first in the lower.
__device__ inline uint32_t Pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

template <int kCount>
__device__ inline void Store(const float (&from)[kCount], bf16* to) {
  if constexpr (kCount == kWide) {
    *reinterpret_cast<uint4*>(to) = make_uint4(Pack(from[0], from[1]), Pack(from[2], from[3]),
                                               Pack(from[4], from[5]), Pack(from[6], from[7]));
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = DeviceBf16(from[i]);
  }
}

// The same floats read or written 16 bytes at a time, where kCount allows.
// REQUIRES: then the pointer is aligned to 16 bytes.
template <int kCount>
__device__ inline void Load(const float* from, float (&to)[kCount]) {
  if constexpr (kCount % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const float4 part = *reinterpret_cast<const float4*>(from + i);
      to[i] = part.x;
      to[i + 1] = part.y;
      to[i + 2] = part.z;
      to[i + 3] = part.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = from[i];
  }
}
template <int kCount>
__device__ inline void Store(const float (&from)[kCount], float* to) {
  if constexpr (kCount % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      *reinterpret_cast<float4*>(to + i) =
          make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = from[i];
  }
}

// The sum over kTeam neighbouring threads, in each of them. All threads of the warp call it.
template <int kTeam, typename Value>
__device__ inline Value TeamSum(Value value) {
#pragma unroll
  for (int width = kTeam / 2; width >= 1; width /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, width);
  }
  return value;
}

template <typename Value>
__device__ inline Value WarpSum(Value value) {
  return TeamSum<kWarp>(value);
}

// The same value in every thread, in one fixed order. `shared` holds a value for each warp and is
// free again when the call returns. All threads of the block call it.
template <typename Value>
__device__ inline Value BlockSum(Value value, Value* shared) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  value = WarpSum(value);
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  Value total = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarp; ++i) total += shared[i];
  __syncthreads();
  return total;
}

// Whether vectors of kWide elements may start at every pointer and after every count of elements.
inline bool AllowsWide(std::initializer_list<const void*> pointers,
                       std::initializer_list<int64_t> counts) {
  bool allows = true;
  for (const void* pointer : pointers) {
    allows = allows && reinterpret_cast<uintptr_t>(pointer) % (kWide * sizeof(bf16)) == 0;
  }
  for (const int64_t count : counts) allows = allows && count % kWide == 0;
  return allows;
}

// Blocks of `threads` for `work` items, for kernels that stride over what is left.
inline unsigned GridFor(int64_t work, int threads) {
  constexpr int64_t kMostBlocks = int64_t{1} << 20;
  const int64_t blocks = (work + threads - 1) / threads;
  return static_cast<unsigned>(blocks < 1 ? 1 : (blocks > kMostBlocks ? kMostBlocks : blocks));
}

}  // namespace penstock::cuda
