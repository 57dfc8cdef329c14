#include "engine/kernels/adamw_update.h"

namespace penstock::adamw {

void UpdatePortable(const Scalars& scalars, const Range& range) {
  for (int64_t i = 0; i < range.count; ++i) UpdateOne(scalars, range, i);
}

}  // namespace penstock::adamw
