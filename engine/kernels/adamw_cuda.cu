// AdamW on CUDA. Memory-bound: a thread updates four neighbours, so that a warp's access to every
// array is whole sectors (16 bytes a thread of f32, 8 of a 16-bit plane); 26 or 28 bytes cross
// the memory for an element, half of them each way; without the moments' 8. Every operation is the
// correctly rounded one of the CPU, in its order, and never contracted into a fused multiply-add.
#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/adamw.h"
#include "engine/kernels/adamw_scalars.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 4;  // elements of a thread

template <typename Gradient>
struct Arrays {
  uint16_t* hi;
  int16_t* lo;
  float* m;
  float* v;
  const Gradient* gradient;
  int64_t count;
};

// A device may use the value, not the function.
template <UpdatePart part>
constexpr bool kChangesMoments = ChangesMoments(part);

struct Element {
  uint32_t bits;  // of w
  float m, v;
};

// adamw_update.h's UpdateOne. The intrinsics are what keeps the compiler from contracting.
__device__ Element Update(const adamw::Scalars& s, const Element& old, float gradient) {
  const float g = __fmul_rn(gradient, s.gradient_scale);
  const float kept = __fmul_rn(__uint_as_float(old.bits), s.keep);
  const float m =
      __fadd_rn(s.m_base_is_gradient ? g : old.m, __fmul_rn(s.m_weight, __fsub_rn(g, old.m)));
  const float v =
      __fadd_rn(__fmul_rn(old.v, s.beta2), __fmul_rn(__fmul_rn(s.one_minus_beta2, g), g));
  const float denominator = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), s.sqrt_correction2), s.epsilon);
  const float w = __fadd_rn(kept, __fdiv_rn(__fmul_rn(s.minus_step_size, m), denominator));
  return {__float_as_uint(w), m, v};
}

__device__ uint32_t JoinBits(uint32_t hi, uint32_t lo) {
  return (hi << 16) + static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(lo)));
}
__device__ uint32_t HiOf(uint32_t bits) { return (bits + 0x8000u) >> 16; }

__device__ void LoadGroup(const float* from, float (&to)[kGroup]) {
  const float4 raw = *reinterpret_cast<const float4*>(from);
  to[0] = raw.x, to[1] = raw.y, to[2] = raw.z, to[3] = raw.w;
}
__device__ void LoadGroup(const bf16* from, float (&to)[kGroup]) {
  const uint2 raw = *reinterpret_cast<const uint2*>(from);
  to[0] = __uint_as_float(raw.x << 16), to[1] = __uint_as_float(raw.x & 0xffff0000u);
  to[2] = __uint_as_float(raw.y << 16), to[3] = __uint_as_float(raw.y & 0xffff0000u);
}

template <UpdatePart part, typename Gradient>
__device__ void UpdateGroup(const adamw::Scalars& s, const Arrays<Gradient>& a, int64_t i) {
  const uint2 hi = *reinterpret_cast<const uint2*>(a.hi + i);
  const uint2 lo = *reinterpret_cast<const uint2*>(a.lo + i);
  float g[kGroup], m[kGroup], v[kGroup];
  LoadGroup(a.gradient + i, g);
  LoadGroup(a.m + i, m);
  LoadGroup(a.v + i, v);
  const uint32_t bits[kGroup] = {JoinBits(hi.x & 0xffffu, lo.x), JoinBits(hi.x >> 16, lo.x >> 16),
                                 JoinBits(hi.y & 0xffffu, lo.y), JoinBits(hi.y >> 16, lo.y >> 16)};
  Element e[kGroup];
#pragma unroll
  for (int k = 0; k < kGroup; ++k) e[k] = Update(s, {bits[k], m[k], v[k]}, g[k]);
  *reinterpret_cast<uint2*>(a.hi + i) =
      make_uint2(HiOf(e[0].bits) | HiOf(e[1].bits) << 16, HiOf(e[2].bits) | HiOf(e[3].bits) << 16);
  // The low halves of the bits are the correction as it is stored.
  *reinterpret_cast<uint2*>(a.lo + i) = make_uint2(__byte_perm(e[0].bits, e[1].bits, 0x5410),
                                                   __byte_perm(e[2].bits, e[3].bits, 0x5410));
  if constexpr (kChangesMoments<part>) {
    *reinterpret_cast<float4*>(a.m + i) = make_float4(e[0].m, e[1].m, e[2].m, e[3].m);
    *reinterpret_cast<float4*>(a.v + i) = make_float4(e[0].v, e[1].v, e[2].v, e[3].v);
  }
}

__device__ float GradientAt(const float* gradient, int64_t i) { return gradient[i]; }
__device__ float GradientAt(const bf16* gradient, int64_t i) {
  return cuda::DeviceFloat(gradient[i]);
}

template <UpdatePart part, typename Gradient>
__device__ void UpdateAt(const adamw::Scalars& s, const Arrays<Gradient>& a, int64_t i) {
  const uint32_t bits = JoinBits(a.hi[i], static_cast<uint16_t>(a.lo[i]));
  const Element e = Update(s, {bits, a.m[i], a.v[i]}, GradientAt(a.gradient, i));
  a.hi[i] = static_cast<uint16_t>(HiOf(e.bits));
  a.lo[i] = static_cast<int16_t>(static_cast<uint16_t>(e.bits));
  if constexpr (kChangesMoments<part>) {
    a.m[i] = e.m;
    a.v[i] = e.v;
  }
}

// `kAligned`: every array allows the accesses of a group.
template <UpdatePart part, typename Gradient, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    AdamWKernel(const adamw::Scalars scalars, const Arrays<Gradient> arrays) {
  const int64_t stride = int64_t{gridDim.x} * kThreads * kGroup;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kGroup; i < arrays.count;
       i += stride) {
    if (kAligned && i + kGroup <= arrays.count) {
      UpdateGroup<part>(scalars, arrays, i);
    } else {
      for (int64_t k = i; k < min(i + kGroup, arrays.count); ++k)
        UpdateAt<part>(scalars, arrays, k);
    }
  }
}

template <UpdatePart part, typename Gradient>
absl::Status Launch(const cuda::Context& context, const AdamWArgs& args, const Gradient* gradient) {
  const adamw::Scalars scalars = adamw::ToScalars(args);
  const Arrays<Gradient> arrays{args.hi, args.lo, args.m, args.v, gradient, args.count};
  const unsigned grid = cuda::GridFor((args.count + kGroup - 1) / kGroup, kThreads);
  if (cuda::AllowsWide({args.hi, args.lo, args.m, args.v, gradient}, {})) {
    AdamWKernel<part, Gradient, true><<<grid, kThreads, 0, context.stream>>>(scalars, arrays);
  } else {
    AdamWKernel<part, Gradient, false><<<grid, kThreads, 0, context.stream>>>(scalars, arrays);
  }
  return cuda::LaunchStatus("AdamW");
}

template <UpdatePart part>
absl::Status Launch(const cuda::Context& context, const AdamWArgs& args) {
  return args.gradient != nullptr ? Launch<part>(context, args, args.gradient)
                                  : Launch<part>(context, args, args.gradient_bf16);
}

}  // namespace

absl::Status AdamW(const cuda::Context& context, const AdamWArgs& args) {
  PENSTOCK_RETURN_IF_ERROR(adamw::CheckContract(args));
  PENSTOCK_RETURN_IF_ERROR(Require(ChangesWeights(args.part), "AdamW",
                                   "weights, or weights and moments, on a device",
                                   {{"part", static_cast<int64_t>(args.part)}}));
  if (args.count == 0) return absl::OkStatus();
  return ChangesMoments(args.part) ? Launch<UpdatePart::kAll>(context, args)
                                   : Launch<UpdatePart::kWeights>(context, args);
}

absl::Status AdamW(const cuda::Context& context, std::span<const AdamWArgs> updates) {
  for (const AdamWArgs& args : updates) PENSTOCK_RETURN_IF_ERROR(AdamW(context, args));
  return absl::OkStatus();
}

}  // namespace penstock
