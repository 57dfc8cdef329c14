#include "tests/engine/kernels/parity.h"

#include "engine/base/thread_pool.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

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
