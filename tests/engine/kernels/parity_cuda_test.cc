#include "engine/kernels/attention.h"
#include "engine/kernels/sum_of_squares.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/cuda_parity.h"

namespace penstock {
namespace {

std::vector<CudaCase> AllCases() {
  std::vector<CudaCase> all;
  for (auto& cases :
       {LinearCudaCases(), NormCudaCases(), PointwiseCudaCases(), AttentionCudaCases()}) {
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

class CudaParityTest : public testing::TestWithParam<CudaCase> {
 protected:
  void SetUp() override {
    context_ = ContextOrNull();
    if (context_ == nullptr) GTEST_SKIP() << "no GPU";
  }
  std::unique_ptr<cuda::OwnedContext> context_;
};

TEST_P(CudaParityTest, EqualsTheReferenceAndRepeats) { ExpectParity(GetParam(), context_->get()); }

INSTANTIATE_TEST_SUITE_P(Ops, CudaParityTest, testing::ValuesIn(AllCases()),
                         [](const testing::TestParamInfo<CudaCase>& info) {
                           return info.param.name;
                         });

// Sums are added to, NaN comes through, and what squares to more than an f32 does not overflow.
TEST(CudaSumOfSquaresTest, SumsInDouble) {
  const auto context = ContextOrNull();
  if (context == nullptr) GTEST_SKIP() << "no GPU";
  for (const int64_t count : {0, 1, 31, 2049, 1'000'003}) {
    Floats x = Random(count, 1);
    if (count > 1) x[1] = 1e30f;
    double expected = 2.0;
    for (const float value : x) expected += static_cast<double>(value) * value;
    const DeviceFloats device(x);
    const DeviceArray<double> sum({2.0});
    ASSERT_TRUE(SumOfSquares(context->get(), device.data(), count, sum.data()).ok());
    EXPECT_NEAR(sum.Download()[0] / expected, 1, 1e-13) << count;
  }
  const DeviceFloats poisoned(Poisoned(3));
  const DeviceArray<double> sum({0.0});
  ASSERT_TRUE(SumOfSquares(context->get(), poisoned.data(), 3, sum.data()).ok());
  EXPECT_NE(sum.Download()[0], sum.Download()[0]);
}

// Contracts are checked before anything is launched, so this needs no device.
TEST(CudaContractTest, LargeHeadsAreRefusedByName) {
  const cuda::Context context{};
  AttentionForwardArgs<bf16> args{};
  args.num_heads = 2;
  args.num_kv_heads = 1;
  args.head_dim = 264;
  const absl::Status status = AttentionForward(context, args);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(std::string(status.message()).find("head_dim is 264"), std::string::npos) << status;
}

}  // namespace
}  // namespace penstock
