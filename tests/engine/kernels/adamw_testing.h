// What the tests of AdamW share.
#pragma once

#include <vector>

#include "engine/base/bf16.h"
#include "engine/kernels/cpu_isa.h"
#include "tests/engine/kernels/parity.h"

namespace penstock {

inline std::vector<bf16> Rounded(const Floats& values) {
  std::vector<bf16> rounded;
  for (const float value : values) rounded.push_back(ToBf16(value));
  return rounded;
}

inline Floats Widened(const std::vector<bf16>& values) {
  Floats widened;
  for (const bf16 value : values) widened.push_back(ToFloat(value));
  return widened;
}

// Those of this machine.
inline std::vector<CpuIsa> Isas() {
  std::vector<CpuIsa> isas;
  for (const CpuIsa isa : {CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (isa <= BestCpuIsa()) isas.push_back(isa);
  }
  return isas;
}

}  // namespace penstock
