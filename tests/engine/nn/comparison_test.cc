#include "tests/engine/nn/comparison.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace penstock {
namespace {

TEST(ComparisonTest, EqualValuesDoNotDiffer) {
  const std::vector<float> values = {1, -2, 0, 3e-30f};
  EXPECT_EQ(Compare(values, values).worst(), 0);
}

TEST(ComparisonTest, MeasuresByNormAndByPeak) {
  const std::vector<float> want = {3, 4};
  const std::vector<float> got = {3, 4.5f};
  const Difference difference = Compare(got, want);
  EXPECT_DOUBLE_EQ(difference.by_norm, 0.5 / 5);
  EXPECT_DOUBLE_EQ(difference.by_peak, 0.5 / 4);
  EXPECT_DOUBLE_EQ(difference.worst(), 0.5 / 4);
}

TEST(ComparisonTest, OneWrongElementAmongManyShowsByPeak) {
  std::vector<float> want(10'000, 1);
  std::vector<float> got = want;
  got[77] += 1e-4f;
  EXPECT_GT(Compare(got, want).by_peak, 5e-5);
}

TEST(ComparisonTest, ZeroReferenceAcceptsOnlyZeros) {
  const std::vector<float> zeros = {0, 0};
  const std::vector<float> tiny = {0, 1e-30f};
  EXPECT_EQ(Compare(zeros, zeros).worst(), 0);
  EXPECT_EQ(Compare(tiny, zeros).worst(), std::numeric_limits<double>::infinity());
}

TEST(ComparisonTest, WhatIsNotFiniteOrNotOfOneSizeDiffersInfinitely) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<float> one = {1};
  const std::vector<float> two = {1, 1};
  const std::vector<float> nan = {std::numeric_limits<float>::quiet_NaN()};
  const std::vector<float> inf = {std::numeric_limits<float>::infinity()};
  EXPECT_EQ(Compare(one, two).worst(), kInfinity);
  EXPECT_EQ(Compare(nan, one).worst(), kInfinity);
  EXPECT_EQ(Compare(one, nan).worst(), kInfinity);
  EXPECT_EQ(Compare(inf, inf).worst(), kInfinity);
}

}  // namespace
}  // namespace penstock
