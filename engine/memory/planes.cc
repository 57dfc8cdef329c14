#include "engine/memory/planes.h"

namespace penstock {

void SplitPlanes(const float* __restrict w, int64_t count, uint16_t* __restrict hi,
                 int16_t* __restrict lo) {
  for (int64_t i = 0; i < count; ++i) {
    const SplitValue value = Split(w[i]);
    hi[i] = value.hi;
    lo[i] = value.lo;
  }
}

void JoinPlanes(const uint16_t* __restrict hi, const int16_t* __restrict lo, int64_t count,
                float* __restrict w) {
  for (int64_t i = 0; i < count; ++i) w[i] = Join(hi[i], lo[i]);
}

}  // namespace penstock
