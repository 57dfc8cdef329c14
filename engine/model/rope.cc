#include "engine/model/rope.h"

#include <cmath>
#include <numbers>

namespace penstock {
namespace {

double ScaleLlama3(const RopeSpec& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = static_cast<double>(rope.original_max_positions);
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (original / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return frequency * ((1 - smooth) / rope.factor + smooth);
}

}  // namespace

std::vector<double> RopeInverseFrequencies(const RopeSpec& rope, int64_t head_dim) {
  std::vector<double> frequencies(head_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    const double frequency = std::pow(rope.theta, exponent);
    switch (rope.scaling) {
      case RopeScaling::kNone:
        frequencies[i] = frequency;
        break;
      case RopeScaling::kLinear:
        frequencies[i] = frequency / rope.factor;
        break;
      case RopeScaling::kLlama3:
        frequencies[i] = ScaleLlama3(rope, frequency);
        break;
    }
  }
  return frequencies;
}

}  // namespace penstock
