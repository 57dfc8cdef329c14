#include "engine/memory/planes.h"

#include <array>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace penstock {
namespace {

uint32_t RoundTrip(uint32_t bits) {
  const SplitValue value = Split(std::bit_cast<float>(bits));
  return std::bit_cast<uint32_t>(Join(value.hi, value.lo));
}

TEST(PlanesTest, EveryPatternClassSurvives) {
  const std::array<uint32_t, 26> patterns = {
      0x00000000, 0x80000000,              // zeros
      0x00000001, 0x80000001,              // least denormals
      0x007FFFFF, 0x807FFFFF,              // largest denormals
      0x00007FFF, 0x00008000, 0x00018000,  // denormals around a tie of the upper half
      0x00800000, 0x80800000,              // least normals
      0x3F800000, 0x3F808000, 0x3F817FFF,  // 1, a tie, just below one
      0x7F7FFFFF, 0xFF7FFFFF,              // largest finite: hi rounds to Inf
      0x7F800000, 0xFF800000,              // infinities
      0x7F800001, 0xFF800001,              // NaN, least payloads
      0x7FBFFFFF, 0x7FC00000,              // signalling, quiet
      0x7FFFFFFF, 0xFFFFFFFF,              // largest payloads; the second wraps
      0xFFFF8000, 0x7FFF8000};
  for (const uint32_t bits : patterns) EXPECT_EQ(RoundTrip(bits), bits) << std::hex << bits;
}

TEST(PlanesTest, EveryHiWithLosAtTheEdgesSurvives) {
  for (uint32_t hi = 0; hi <= 0xFFFF; ++hi) {
    for (const int32_t lo : {-32768, -32767, -1, 0, 1, 77, 32766, 32767}) {
      const uint16_t h = static_cast<uint16_t>(hi);
      const int16_t l = static_cast<int16_t>(lo);
      const uint32_t bits = (hi << 16) + static_cast<uint32_t>(lo);
      ASSERT_EQ(std::bit_cast<uint32_t>(Join(h, l)), bits);
      // The pair is the only one for its value, so planes can be compared instead of weights.
      const SplitValue split = Split(std::bit_cast<float>(bits));
      ASSERT_EQ(split.hi, h);
      ASSERT_EQ(split.lo, l);
    }
  }
}

TEST(PlanesTest, HiIsTheNearestBfloat16) {
  std::mt19937 generator(1);
  for (int i = 0; i < 1000000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(generator());
    const float w = std::bit_cast<float>(bits);
    if (!std::isfinite(w) || (bits & 0x7FFF0000) == 0x7F7F0000) continue;
    const auto distance = [w](uint32_t hi) {
      return std::abs(double{w} - std::bit_cast<float>(hi << 16));
    };
    const uint32_t hi = Split(w).hi;
    ASSERT_LE(distance(hi), distance(bits >> 16));
    ASSERT_LE(distance(hi), distance((bits >> 16) + 1));
  }
}

TEST(PlanesTest, AHundredMillionRandomValuesSurviveInArrays) {
  constexpr int64_t kChunk = 1000000;
  std::mt19937_64 generator(2);
  std::vector<float> w(kChunk), again(kChunk);
  std::vector<uint16_t> hi(kChunk);
  std::vector<int16_t> lo(kChunk);
  for (int chunk = 0; chunk < 100; ++chunk) {
    for (int64_t i = 0; i < kChunk; i += 2) {
      const uint64_t bits = generator();
      w[i] = std::bit_cast<float>(static_cast<uint32_t>(bits));
      w[i + 1] = std::bit_cast<float>(static_cast<uint32_t>(bits >> 32));
    }
    SplitPlanes(w.data(), kChunk, hi.data(), lo.data());
    JoinPlanes(hi.data(), lo.data(), kChunk, again.data());
    int64_t different = 0;
    for (int64_t i = 0; i < kChunk; ++i) {
      different += std::bit_cast<uint32_t>(w[i]) != std::bit_cast<uint32_t>(again[i]);
    }
    ASSERT_EQ(different, 0) << "in chunk " << chunk;
  }
}

}  // namespace
}  // namespace penstock
