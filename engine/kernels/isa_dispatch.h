// Runs a loop compiled for the machine's instruction set. The loop is written once, as a struct
//
//   struct ScaleRows {
//     PENSTOCK_ISA_BODY void Run(const float* x, int64_t n) { ... }
//   };
//   RunForIsa<ScaleRows>(x, n);
//
// and the compiler vectorises one copy for each CpuIsa. The copies give the same bits: the
// folder is compiled without contraction, and sums name their lanes (vector_math.h).
//
// Target attributes, not files with -mavx2: an inline function of the standard library that
// such a file emits may be the copy that the linker keeps for machines without AVX2.
#pragma once

#include "engine/kernels/cpu_isa.h"

// For functions that must become part of the caller, whatever its instruction set.
#define PENSTOCK_ALWAYS_INLINE [[gnu::always_inline]] inline
#define PENSTOCK_ISA_BODY [[gnu::always_inline]] static inline

#define PENSTOCK_TARGET_AVX2 [[gnu::target("avx2")]]
#define PENSTOCK_TARGET_AVX512 [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq")]]

namespace penstock {

template <typename Body, typename... Args>
PENSTOCK_TARGET_AVX2 void RunAvx2(const Args&... args) {
  Body::Run(args...);
}

template <typename Body, typename... Args>
PENSTOCK_TARGET_AVX512 void RunAvx512(const Args&... args) {
  Body::Run(args...);
}

// REQUIRES: isa <= BestCpuIsa().
template <typename Body, typename... Args>
void RunAsIsa(CpuIsa isa, const Args&... args) {
  switch (isa) {
    case CpuIsa::kAvx512:
      return RunAvx512<Body>(args...);
    case CpuIsa::kAvx2:
      return RunAvx2<Body>(args...);
    case CpuIsa::kPortable:
      return Body::Run(args...);
  }
}

template <typename Body, typename... Args>
void RunForIsa(const Args&... args) {
  RunAsIsa<Body>(BestCpuIsa(), args...);
}

}  // namespace penstock
