#include "engine/kernels/adamw_update.h"

namespace penstock::adamw {

template <typename Gradient>
void UpdatePortable(const Scalars& scalars, const Range<Gradient>& range) {
  for (int64_t i = 0; i < range.count; ++i) UpdateOne(scalars, range, i);
}

template void UpdatePortable(const Scalars& scalars, const Range<float>& range);
template void UpdatePortable(const Scalars& scalars, const Range<bf16>& range);

}  // namespace penstock::adamw
