#include "engine/kernels/round_gradients.h"

#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/thread_pool.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/parity.h"

namespace penstock {
namespace {

// Values that round either way, ties, overflow to Inf, and NaN.
Floats Values(int64_t count) {
  const float special[] = {1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, std::numeric_limits<float>::max(),
                           -0.0f, std::numeric_limits<float>::quiet_NaN()};
  Floats values = Random(count, 7);
  for (int64_t i = 0; i < count; i += 11) values[i] = special[i / 11 % std::size(special)];
  return values;
}

std::vector<uint16_t> BitsOf(const bf16* values, int64_t count) {
  std::vector<uint16_t> bits;
  for (int64_t i = 0; i < count; ++i) bits.push_back(values[i].bits);
  return bits;
}

TEST(RoundToBf16Test, RoundsEveryElementApartAndInPlace) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const int64_t count : {0, 1, 2, 3, 5, 64, 1000, 65536, 300001}) {
      const Floats in = Values(count);
      std::vector<uint16_t> expected;
      for (const float value : in) expected.push_back(ToBf16(value).bits);

      std::vector<bf16> apart(count, {0x1234});
      ASSERT_TRUE(RoundToBf16({&pool}, in.data(), apart.data(), count).ok());
      EXPECT_EQ(BitsOf(apart.data(), count), expected) << count;

      Floats in_place = in;
      bf16* out = reinterpret_cast<bf16*>(in_place.data());
      ASSERT_TRUE(RoundToBf16({&pool}, in_place.data(), out, count).ok());
      EXPECT_EQ(BitsOf(out, count), expected) << count;
    }
  }
}

}  // namespace
}  // namespace penstock
