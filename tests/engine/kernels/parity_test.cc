#include "tests/engine/kernels/parity.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/thread_pool.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

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

std::vector<ParityCase> AllCases() {
  std::vector<ParityCase> all;
  for (auto& cases : {LinearCases(), NormCases(), PointwiseCases(), AttentionCases()}) {
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

class ParityTest : public testing::TestWithParam<ParityCase> {};

TEST_P(ParityTest, EqualsTheReferenceWithAnyNumberOfThreads) {
  ThreadPool one(1);
  const std::vector<Floats> actual = GetParam().run({&one});
  const std::vector<reference::Doubles> expected = GetParam().expected();
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ExpectClose(actual[i], expected[i], GetParam().tolerance, "output " + std::to_string(i));
  }
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    const std::vector<Floats> again = GetParam().run({&pool});
    ASSERT_EQ(again.size(), actual.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_TRUE(SameBits(actual[i], again[i]))
          << "output " << i << " with " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, ParityTest, testing::ValuesIn(AllCases()),
                         [](const testing::TestParamInfo<ParityCase>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace penstock
