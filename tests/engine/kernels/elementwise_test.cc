#include "engine/kernels/elementwise.h"

#include <cmath>
#include <limits>

#include "engine/base/thread_pool.h"
#include "engine/kernels/sum_of_squares.h"
#include "engine/memory/planes.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/parity.h"

namespace penstock {
namespace {

constexpr int64_t kCounts[] = {0, 1, 17, 65536, 200001};

TEST(ElementwiseTest, JoinsCopiesAddsAndFillsEveryElement) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    const cpu::Context context{&pool};
    for (const int64_t count : kCounts) {
      const Floats w = Random(count, 1);
      const Floats other = Random(count, 2);
      std::vector<uint16_t> hi(count);
      std::vector<int16_t> lo(count);
      SplitPlanes(w.data(), count, hi.data(), lo.data());
      Floats out = Poisoned(count);
      ASSERT_TRUE(JoinPlanes(context, hi.data(), lo.data(), count, out.data()).ok());
      EXPECT_EQ(out, w);
      ASSERT_TRUE(CopyBytes(context, out.data(), other.data(), count * 4).ok());
      EXPECT_EQ(out, other);
      ASSERT_TRUE(FillFloats(context, out.data(), 2.5f, count).ok());
      EXPECT_EQ(out, Floats(count, 2.5f));
    }
  }
}

TEST(SumOfSquaresTest, IsExactToFloat64AndTheSameForAnyNumberOfThreads) {
  ThreadPool one(1), two(2), three(3);
  for (const int64_t count : {0, 1, 15, 16384, 16385, 9000001}) {
    const Floats x = Random(count, 1);
    long double expected = 0;
    for (const float value : x) expected += static_cast<long double>(value) * value;
    const double sum = SumOfSquares({&one}, x.data(), count);
    EXPECT_NEAR(sum, static_cast<double>(expected), 1e-13 * static_cast<double>(expected));
    EXPECT_EQ(sum, SumOfSquares({&two}, x.data(), count));
    EXPECT_EQ(sum, SumOfSquares({&three}, x.data(), count));
  }
}

TEST(SumOfSquaresTest, Bfloat16GivesTheBitsOfItsFloats) {
  ThreadPool pool(2);
  for (const int64_t count : {0, 1, 15, 16385, 9000001}) {
    std::vector<bf16> x;
    Floats widened;
    for (const float value : Random(count, 1)) {
      x.push_back(ToBf16(value));
      widened.push_back(ToFloat(x.back()));
    }
    EXPECT_EQ(SumOfSquares({&pool}, x.data(), count), SumOfSquares({&pool}, widened.data(), count));
  }
}

TEST(SumOfSquaresTest, ShowsWhatIsNotFiniteAndDoesNotOverflow) {
  ThreadPool pool(2);
  Floats x(100000, 1.0f);
  x[77777] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(SumOfSquares({&pool}, x.data(), 100000), std::numeric_limits<double>::infinity());
  x[77777] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(SumOfSquares({&pool}, x.data(), 100000)));
  x.assign(100000, std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isfinite(SumOfSquares({&pool}, x.data(), 100000)));
}

}  // namespace
}  // namespace penstock
