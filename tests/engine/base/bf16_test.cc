#include "engine/base/bf16.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace penstock {
namespace {

TEST(Bf16Test, EveryValueComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = ToFloat({static_cast<uint16_t>(bits)});
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(ToFloat(ToBf16(value)))) << bits;
    } else {
      EXPECT_EQ(ToBf16(value).bits, bits);
    }
  }
}

TEST(Bf16Test, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(ToFloat(ToBf16(1.0f + 0x1p-8f)), 1.0f);                // tie, down to even
  EXPECT_EQ(ToFloat(ToBf16(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);  // tie, up to even
  EXPECT_EQ(ToFloat(ToBf16(1.0f + 0x1.02p-8f)), 1.0f + 0x1p-7f);
  EXPECT_EQ(ToFloat(ToBf16(-1.0f - 0x1p-9f)), -1.0f);
  EXPECT_EQ(ToFloat(ToBf16(std::numeric_limits<float>::max())),
            std::numeric_limits<float>::infinity());
}

TEST(Bf16Test, NaNWithASmallPayloadStaysNaN) {
  EXPECT_TRUE(std::isnan(ToFloat(ToBf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(ToFloat(ToBf16(std::bit_cast<float>(0xffffffffu)))));
}

}  // namespace
}  // namespace penstock
