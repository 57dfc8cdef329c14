#include "tests/engine/kernels/parity.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>

#include "gtest/gtest.h"

namespace penstock {

Floats Poisoned(int64_t count) { return Floats(count, std::numeric_limits<float>::quiet_NaN()); }

Floats Random(int64_t count, uint32_t seed, float deviation) {
  // Box-Muller by hand: std::normal_distribution differs between libraries.
  std::mt19937 generator(seed);
  const auto uniform = [&] { return (generator() + 0.5) / 4294967296.0; };
  Floats values(count);
  for (float& value : values) {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    value = static_cast<float>(deviation * radius * std::cos(2 * std::numbers::pi * uniform()));
  }
  return values;
}

reference::Doubles ToDoubles(const Floats& values) {
  return reference::Doubles(values.begin(), values.end());
}

Floats Columns(const Floats& view, int64_t rows, int64_t stride, int64_t begin, int64_t count) {
  Floats columns;
  columns.reserve(rows * count);
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = view.begin() + row * stride + begin;
    columns.insert(columns.end(), first, first + count);
  }
  return columns;
}

void ExpectClose(const Floats& actual, const reference::Doubles& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 1.0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < actual.size(); ++i) {
    // Written so that NaN fails.
    ASSERT_TRUE(std::abs(actual[i] - expected[i]) <= tolerance * largest)
        << what << ", element " << i << ": " << actual[i] << " instead of " << expected[i];
  }
}

bool SameBits(const Floats& a, const Floats& b) {
  // memcmp takes no null, which an empty vector may hold.
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace penstock
