#include "engine/kernels/vector_math.h"

#include <bit>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tests/engine/kernels/parity.h"

namespace penstock {
namespace {

TEST(VectorMathTest, ExpIsWithinTwoUlp) {
  double worst = 0;
  const auto visit = [&worst](float x) {
    const double expected = std::exp(double{x});
    const float rounded = static_cast<float>(expected);
    const double ulp =
        double{std::nextafter(rounded, std::numeric_limits<float>::infinity())} - rounded;
    worst = std::max(worst, std::abs(Exp(x) - expected) / ulp);
  };
  // Every 251st pattern of [2^-30, 87.3], both signs.
  const uint32_t last = std::bit_cast<uint32_t>(87.3f);
  for (uint32_t bits = std::bit_cast<uint32_t>(9.3132257e-10f); bits <= last; bits += 251) {
    visit(std::bit_cast<float>(bits));
    visit(-std::bit_cast<float>(bits));
  }
  EXPECT_LE(worst, 2.0);
}

TEST(VectorMathTest, ExpAtTheEdges) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(-87.34f), 0.0f);
  EXPECT_EQ(Exp(-1e30f), 0.0f);
  EXPECT_EQ(Exp(-kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<float>::quiet_NaN())));
}

struct SumExpMax {
  PENSTOCK_ISA_BODY void Run(const float* x, int64_t n, double* sum, float* exps, float* max) {
    *sum = LaneSum(
        n, [x](int64_t i) __attribute__((always_inline)) { return double{x[i]} * x[i]; });
    for (int64_t i = 0; i < n; ++i) exps[i] = Exp(x[i]);
    *max = Max(x, n);
  }
};

TEST(VectorMathTest, InstructionSetsGiveTheSameBits) {
  for (const int64_t n : {0, 1, 15, 16, 17, 100, 1003}) {
    const Floats x = Random(n, 3, 10.0f);
    double sum, again;
    float max, max_again;
    Floats exps(n), exps_again(n);
    SumExpMax::Run(x.data(), n, &sum, exps.data(), &max);
    if (BestCpuIsa() >= CpuIsa::kAvx2) {
      RunAvx2<SumExpMax>(x.data(), n, &again, exps_again.data(), &max_again);
      EXPECT_EQ(sum, again);
      EXPECT_EQ(max, max_again);
      EXPECT_EQ(exps, exps_again);
    }
    if (BestCpuIsa() >= CpuIsa::kAvx512) {
      RunAvx512<SumExpMax>(x.data(), n, &again, exps_again.data(), &max_again);
      EXPECT_EQ(sum, again);
      EXPECT_EQ(max, max_again);
      EXPECT_EQ(exps, exps_again);
    }
  }
}

}  // namespace
}  // namespace penstock
