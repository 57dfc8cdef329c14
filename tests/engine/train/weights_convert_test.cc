#include <bit>
#include <cmath>
#include <limits>

#include "engine/train/weight_convert.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

// The value of a finite 16-bit float by its definition.
double Defined(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return bits & 0x8000 ? -magnitude : magnitude;
}

bool IsFinite(uint16_t bits, WeightType type) {
  const uint16_t exponent = type == WeightType::kFloat16 ? 0x7c00 : 0x7f80;
  return (bits & exponent) != exponent;
}

float Widen(WeightType type, uint16_t bits) {
  float value = 0;
  WidenWeights(type, reinterpret_cast<const std::byte*>(&bits), {&value, 1});
  return value;
}

uint16_t Narrow(WeightType type, float value) {
  uint16_t bits = 0;
  NarrowWeights(type, {&value, 1}, reinterpret_cast<std::byte*>(&bits));
  return bits;
}

TEST(WeightConvertTest, EveryNarrowPatternWidensExactlyAndComesBack) {
  for (uint32_t pattern = 0; pattern <= 0xffff; ++pattern) {
    const uint16_t bits = static_cast<uint16_t>(pattern);
    if (IsFinite(bits, WeightType::kFloat16)) {
      ASSERT_EQ(static_cast<double>(HalfToFloat(bits)), Defined(bits, 5, 10)) << pattern;
      ASSERT_EQ(FloatToHalf(HalfToFloat(bits)), bits);
    }
    if (IsFinite(bits, WeightType::kBFloat16)) {
      ASSERT_EQ(static_cast<double>(Widen(WeightType::kBFloat16, bits)), Defined(bits, 8, 7));
      ASSERT_EQ(Narrow(WeightType::kBFloat16, Widen(WeightType::kBFloat16, bits)), bits);
    }
  }
}

// Between two neighbours of the narrow type: nearest wins, and the even one at the middle.
void CheckRounding(WeightType type, uint16_t bits) {
  const uint16_t next = static_cast<uint16_t>(bits + 1);
  const double low = Widen(type, bits), high = Widen(type, next);
  const float middle = static_cast<float>((low + high) / 2);  // exact in fp32
  const float below = std::nextafter(middle, static_cast<float>(low));
  const float above = std::nextafter(middle, static_cast<float>(high));
  const uint16_t even = bits % 2 == 0 ? bits : next;
  ASSERT_EQ(Narrow(type, middle), even) << bits;
  ASSERT_EQ(Narrow(type, below), bits) << bits;
  ASSERT_EQ(Narrow(type, above), next) << bits;
  ASSERT_EQ(Narrow(type, -middle), even | 0x8000) << bits;
}

TEST(WeightConvertTest, RoundsToNearestTiesToEven) {
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) CheckRounding(WeightType::kFloat16, bits);
  // The middle of two bf16 subnormals is an fp32 subnormal: exact too.
  for (uint16_t bits = 0; bits < 0x7f7f; ++bits) CheckRounding(WeightType::kBFloat16, bits);
}

TEST(WeightConvertTest, SpecialValuesStaySpecial) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(FloatToHalf(infinity), 0x7c00);
  EXPECT_EQ(FloatToHalf(-infinity), 0xfc00);
  EXPECT_EQ(FloatToHalf(1e30f), 0x7c00);
  EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(std::nanf("")))));
  EXPECT_TRUE(std::isinf(HalfToFloat(0x7c00)));
  EXPECT_TRUE(std::isnan(Widen(WeightType::kBFloat16, FloatToBFloat16(std::nanf("")))));
  // A NaN whose payload lies in the bits that go.
  EXPECT_TRUE(
      std::isnan(Widen(WeightType::kBFloat16, FloatToBFloat16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(WeightConvertTest, FindsWhatIsNotFiniteAfterNarrowing) {
  const auto find = [](float value, WeightType type) {
    const float values[] = {1, -2, value, value};
    return FindNonFinite(values, type);
  };
  const float infinity = std::numeric_limits<float>::infinity();
  for (WeightType type : {WeightType::kFloat32, WeightType::kFloat16, WeightType::kBFloat16}) {
    EXPECT_EQ(find(0, type), -1);
    EXPECT_EQ(find(infinity, type), 2);
    EXPECT_EQ(find(-infinity, type), 2);
    EXPECT_EQ(find(std::nanf(""), type), 2);
  }
  EXPECT_EQ(find(65519, WeightType::kFloat16), -1);
  EXPECT_EQ(find(-65520, WeightType::kFloat16), 2);
  EXPECT_EQ(find(65520, WeightType::kBFloat16), -1);
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(find(largest, WeightType::kFloat32), -1);
  EXPECT_EQ(find(largest, WeightType::kBFloat16), 2);
}

}  // namespace
}  // namespace penstock
