#include "engine/model/rope.h"

#include <cmath>
#include <numbers>

#include "gtest/gtest.h"

namespace penstock {
namespace {

TEST(RopeTest, BaseFrequenciesAreThePowersOfTheta) {
  const std::vector<double> frequencies =
      RopeInverseFrequencies({.scaling = RopeScaling::kNone, .theta = 10000}, 8);
  ASSERT_EQ(frequencies.size(), 4u);
  EXPECT_DOUBLE_EQ(frequencies[0], 1);
  EXPECT_DOUBLE_EQ(frequencies[1], 0.1);
  EXPECT_DOUBLE_EQ(frequencies[2], 0.01);
  EXPECT_DOUBLE_EQ(frequencies[3], 0.001);
}

TEST(RopeTest, LinearScalingDividesEveryFrequency) {
  const std::vector<double> frequencies =
      RopeInverseFrequencies({.scaling = RopeScaling::kLinear, .theta = 10000, .factor = 4}, 8);
  EXPECT_DOUBLE_EQ(frequencies[0], 0.25);
  EXPECT_DOUBLE_EQ(frequencies[3], 0.00025);
}

// The rule told the other way round: by how often a pair turns within the original context.
double Llama3Reference(double base_frequency, const RopeSpec& rope) {
  const double turns =
      static_cast<double>(rope.original_max_positions) * base_frequency / (2 * std::numbers::pi);
  const double share =
      (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  const double kept = std::fmin(1, std::fmax(0, share));
  return kept * base_frequency + (1 - kept) * base_frequency / rope.factor;
}

TEST(RopeTest, Llama3ScalingAgreesWithASecondFormula) {
  for (const double factor : {8.0, 32.0}) {
    const RopeSpec rope = {.scaling = RopeScaling::kLlama3,
                           .theta = 500000,
                           .factor = factor,
                           .low_freq_factor = 1,
                           .high_freq_factor = 4,
                           .original_max_positions = 8192};
    const std::vector<double> frequencies = RopeInverseFrequencies(rope, 128);
    ASSERT_EQ(frequencies.size(), 64u);
    int kept = 0, scaled = 0, between = 0;
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const double base = std::exp(-std::log(rope.theta) * static_cast<double>(i) / 64);
      EXPECT_NEAR(frequencies[i] / Llama3Reference(base, rope), 1, 1e-12) << i;
      const double ratio = frequencies[i] / base;
      if (ratio > 1 - 1e-12) {
        ++kept;
      } else if (ratio < 1 / factor + 1e-12) {
        ++scaled;
      } else {
        ++between;
      }
    }
    EXPECT_GT(kept, 10);  // all three cases occur
    EXPECT_GT(scaled, 10);
    EXPECT_GT(between, 2);
  }
}

}  // namespace
}  // namespace penstock
