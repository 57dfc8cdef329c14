#include "engine/kernels/cpu_isa.h"

namespace penstock {

CpuIsa BestCpuIsa() {
  static const CpuIsa best = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
      return CpuIsa::kAvx512;
    }
    if (__builtin_cpu_supports("avx2")) return CpuIsa::kAvx2;
    return CpuIsa::kPortable;
  }();
  return best;
}

}  // namespace penstock
