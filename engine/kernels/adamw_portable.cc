#include "engine/kernels/adamw_update.h"

namespace penstock::adamw {

template <UpdatePart part, typename Gradient>
void UpdatePortable(const Scalars& scalars, const Range<Gradient>& range) {
  for (int64_t i = 0; i < range.count; ++i) UpdateOne<part>(scalars, range, i);
}

template void UpdatePortable<UpdatePart::kAll>(const Scalars&, const Range<float>&);
template void UpdatePortable<UpdatePart::kAll>(const Scalars&, const Range<bf16>&);
template void UpdatePortable<UpdatePart::kWeights>(const Scalars&, const Range<float>&);
template void UpdatePortable<UpdatePart::kWeights>(const Scalars&, const Range<bf16>&);
template void UpdatePortable<UpdatePart::kMoments>(const Scalars&, const Range<float>&);
template void UpdatePortable<UpdatePart::kMoments>(const Scalars&, const Range<bf16>&);

}  // namespace penstock::adamw
