// Rotary frequencies: the angle by which one position turns each pair (i, i + head_dim/2).
//
//   base     f[i] = theta^(-2i / head_dim)
//   linear   f[i] / factor
//   llama3   by the wavelength w = 2 pi / f[i], with o = original_max_positions:
//              w < o / high_freq_factor   f[i]
//              w > o / low_freq_factor    f[i] / factor
//              between                    f[i] * ((1 - s) / factor + s),
//                                         s = (o / w - low) / (high - low)
//
// In double: fp32 angles at position 100,000 are only as good as the frequency.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/model_spec.h"

namespace penstock {

// head_dim / 2 values. REQUIRES: a spec that ParseModelConfig made, an even head_dim.
std::vector<double> RopeInverseFrequencies(const RopeSpec& rope, int64_t head_dim);

}  // namespace penstock
