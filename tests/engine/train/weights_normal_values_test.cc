#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "engine/memory/planes.h"
#include "engine/train/normal_values.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

using Words = std::array<uint32_t, 4>;

// The paper's algorithm, written as it stands there.
Words Philox(Words x, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = 0xD2511F53ull * x[0], product1 = 0xCD9E8D57ull * x[2];
    x = {static_cast<uint32_t>(product1 >> 32) ^ x[1] ^ key0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ x[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return x;
}

double Reference(uint64_t seed, uint32_t stream, int64_t i) {
  const uint64_t counter = static_cast<uint64_t>(16 * (i / 64) + i % 16);
  const Words w =
      Philox({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), stream, 0},
             static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  const int64_t word = i % 64 / 16;
  const uint32_t a = w[word / 2 * 2], b = w[word / 2 * 2 + 1];
  const double uniform = static_cast<double>(static_cast<float>(a / 2) + 0.5f) * 0x1p-31;
  const double angle =
      std::numbers::pi / 2 * (static_cast<double>(b >> 30) + (b & 0x3FFFFFFFu) * 0x1p-30 - 0.5);
  const double radius = std::sqrt(-2 * std::log(uniform));
  return radius * (word % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

std::vector<float> Values(const NormalStream& stream, int64_t first, int64_t count,
                          CpuIsa isa = BestCpuIsa()) {
  // A guard behind the end shows a write too many.
  std::vector<uint16_t> hi(count + 1, 0xABCD);
  std::vector<int16_t> lo(count + 1, 0x1234);
  WriteNormalPlanes(stream, first, count, hi.data(), lo.data(), isa);
  EXPECT_EQ(hi.back(), 0xABCD);
  EXPECT_EQ(lo.back(), 0x1234);
  std::vector<float> values(count);
  JoinPlanes(hi.data(), lo.data(), count, values.data());
  return values;
}

// The known answers of the authors' Random123 library.
TEST(NormalValuesTest, TheReferenceHasTheGeneratorsKnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(NormalValuesTest, FollowsTheFormula) {
  constexpr uint64_t kSeed = 0x0123456789ABCDEFull;
  constexpr int64_t kCount = 200'000;
  // Counters on both sides of 2^32, where the second word begins to count.
  for (const int64_t first : {int64_t{0}, (int64_t{1} << 34) - 64 * 1000}) {
    const std::vector<float> values =
        Values({.seed = kSeed, .stream = 77, .deviation = 1}, first, kCount);
    double worst = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      worst = std::max(worst, std::abs(values[i] - Reference(kSeed, 77, first + i)));
    }
    EXPECT_LT(worst, 4e-6);
  }
}

TEST(NormalValuesTest, TheSameBitsInEveryInstructionSetAndHoweverCut) {
  const NormalStream stream{.seed = 5, .stream = 1, .deviation = 0.02f};
  const std::vector<float> whole = Values(stream, 0, 1000, CpuIsa::kPortable);
  for (const CpuIsa isa : {CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (isa > BestCpuIsa()) continue;
    EXPECT_EQ(Values(stream, 0, 1000, isa), whole);
    for (const int64_t first : {0, 64, 640}) {
      for (const int64_t count : {0, 1, 15, 16, 63, 64, 65, 200}) {
        const std::vector<float> part(whole.begin() + first, whole.begin() + first + count);
        EXPECT_EQ(Values(stream, first, count, isa), part) << first << " + " << count;
      }
    }
  }
}

// Shares of a million values beyond 0.5, 1, 2, 3 and 4 deviations, within five standard errors.
TEST(NormalValuesTest, TailsAreThoseOfTheNormalDistribution) {
  constexpr int64_t kCount = 1'000'000;
  const std::vector<float> values = Values({.seed = 3, .stream = 0, .deviation = 1}, 0, kCount);
  for (const double limit : {0.5, 1.0, 2.0, 3.0, 4.0}) {
    const double wanted = kCount * std::erfc(limit / std::numbers::sqrt2) / 2;
    for (const double sign : {-1.0, 1.0}) {
      const auto beyond = std::count_if(values.begin(), values.end(),
                                        [&](float value) { return sign * value > limit; });
      EXPECT_NEAR(static_cast<double>(beyond), wanted, 5 * std::sqrt(wanted)) << sign * limit;
    }
  }
}

// Lag 1 to 64: neighbours, the other word of a pair and the next group.
TEST(NormalValuesTest, NeighboursAreUncorrelated) {
  constexpr int64_t kCount = 1'000'000;
  const std::vector<float> values = Values({.seed = 4, .stream = 9, .deviation = 1}, 0, kCount);
  for (const int64_t lag : {1, 2, 15, 16, 17, 32, 48, 64}) {
    double product = 0, squares = 0;
    for (int64_t i = 0; i + lag < kCount; ++i) {
      const double a = values[i], b = values[i + lag];
      product += a * b;
      squares += (a * a - 1) * (b * b - 1);
    }
    EXPECT_LT(std::abs(product), 5 * std::sqrt(kCount)) << lag;
    EXPECT_LT(std::abs(squares), 5 * 2 * std::sqrt(kCount)) << lag;
  }
}

}  // namespace
}  // namespace penstock
