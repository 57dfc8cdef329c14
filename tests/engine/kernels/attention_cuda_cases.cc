#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_calls.h"
#include "engine/kernels/attention_cudnn.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/attention_fixture.h"
#include "tests/engine/kernels/cuda_parity.h"

namespace penstock {
namespace {

// Of bf16 probabilities and their gradients, summed over the keys.
constexpr double kOutBound = 1e-2;
constexpr double kGradientBound = 2e-2;
constexpr double kLseBound = 1e-4;

// Which kernels run: our own, or cuDNN's, which then must not fall back. What its backward plans
// may have decides how it is cut; 0 is the default.
struct Route {
  bool cudnn = false;
  int64_t plan_bytes = 0;
};

void RunForward(cuda::Context context, const Route& route, const AttentionForwardArgs<bf16>& args) {
  if (route.cudnn) {
    const absl::StatusOr<bool> queued = cuda::attention::ForwardByCudnn(context, args);
    ASSERT_TRUE(queued.ok()) << queued.status();
    EXPECT_EQ(*queued, args.rows > 0) << "refused";
    return;
  }
  context.cudnn = nullptr;
  const absl::Status status = AttentionForward(context, args);
  EXPECT_TRUE(status.ok()) << status;
}

void RunBackward(cuda::Context context, const Route& route,
                 const AttentionBackwardArgs<bf16>& args) {
  if (route.cudnn) {
    const absl::StatusOr<bool> queued = cuda::attention::BackwardByCudnn(context, args);
    ASSERT_TRUE(queued.ok()) << queued.status();
    EXPECT_EQ(*queued, args.rows > 0) << "refused";
    return;
  }
  context.cudnn = nullptr;
  const absl::Status status = AttentionBackward(context, args);
  EXPECT_TRUE(status.ok()) << status;
}

AttentionResults RunOnDevice(const cuda::Context& context, const Route& route,
                             const AttentionInputs& inputs) {
  const reference::AttentionShape& shape = inputs.shape;
  const int64_t scratch_bytes =
      route.plan_bytes > 0
          ? attention::kTableBytes + attention::kRoundingBytes + route.plan_bytes
          : CudaAttentionScratchBytes({shape.rows(), shape.heads, shape.kv_heads, shape.head_dim});
  const DeviceFloats scratch(Poisoned(scratch_bytes / static_cast<int64_t>(sizeof(float)) + 1));
  const DeviceBf16 qkv(inputs.qkv), dout(inputs.dout);
  const DeviceBf16 out(Poisoned(inputs.dout.size())), dqkv(Poisoned(inputs.qkv.size()));
  const DeviceFloats lse(Poisoned(shape.rows() * shape.heads));
  const DeviceInts starts(shape.starts);
  const AttentionArrays<bf16> arrays{.qkv = qkv.data(),
                                     .dout = dout.data(),
                                     .out = out.data(),
                                     .lse = lse.data(),
                                     .dqkv = dqkv.data(),
                                     .starts = starts.data(),
                                     .scratch = scratch.data(),
                                     .scratch_bytes = scratch_bytes};
  RunForward(context, route, ForwardArgs(inputs, arrays));
  RunBackward(context, route, BackwardArgs(inputs, arrays));
  return {out.Download(), lse.Download(), dqkv.Download()};
}

AttentionInputs RandomInputs(const reference::AttentionShape& shape) {
  AttentionInputs inputs{.shape = shape, .qkv = {}, .dout = {}};
  inputs.qkv = RandomBf16(shape.rows() * inputs.stride(), 1);
  inputs.dout = RandomBf16(shape.rows() * inputs.q_size(), 2);
  return inputs;
}

CudaCase Case(const std::string& documents_name, const std::vector<int32_t>& starts, int64_t heads,
              int64_t kv_heads, int64_t head_dim, int64_t window, const Route& route = {}) {
  const AttentionInputs inputs =
      RandomInputs({.starts = starts,
                    .heads = heads,
                    .kv_heads = kv_heads,
                    .head_dim = head_dim,
                    .window = window,
                    .scale = static_cast<float>(1.0 / std::sqrt(head_dim))});
  return {.name = absl::StrCat("Attention", documents_name, "Heads", heads, "of", kv_heads, "Dim",
                               head_dim, "Window", window),
          .run =
              [=](const cuda::Context& context) {
                const AttentionResults results = RunOnDevice(context, route, inputs);
                const auto columns = [&](int64_t begin, int64_t count) {
                  return Columns(results.dqkv, inputs.shape.rows(), inputs.stride(), begin, count);
                };
                return std::vector<Floats>{
                    results.out, results.lse, columns(0, inputs.q_size()),
                    columns(inputs.q_size(), inputs.kv_size()),
                    columns(inputs.q_size() + inputs.kv_size(), inputs.kv_size())};
              },
          .expected =
              [=] {
                const auto q = ToDoubles(inputs.q());
                const auto k = ToDoubles(inputs.k());
                const auto v = ToDoubles(inputs.v());
                const auto forward = reference::Attention(inputs.shape, q, k, v);
                const auto g =
                    reference::AttentionBackward(inputs.shape, q, k, v, ToDoubles(inputs.dout));
                return std::vector<reference::Doubles>{forward.out, forward.lse, g.dq, g.dk, g.dv};
              },
          .tolerances = {kOutBound, kLseBound, kGradientBound, kGradientBound, kGradientBound}};
}

// A document has the same bits whatever is packed beside it, and NaN stays in its document.
void ExpectIsolated(const cuda::Context& context, const Route& route, int64_t head_dim,
                    int64_t window, int32_t length) {
  const AttentionInputs document = RandomInputs({{0, length}, 4, 2, head_dim, window, 0.2});
  const AttentionResults alone = RunOnDevice(context, route, document);
  const std::vector<int32_t> starts = {0, 37, 37, 166, 166 + length, 166 + length + 41};
  AttentionInputs packed = RandomInputs({starts, 4, 2, head_dim, window, 0.2});
  std::fill(packed.qkv.begin(), packed.qkv.end(), std::numeric_limits<float>::quiet_NaN());
  std::copy(document.qkv.begin(), document.qkv.end(), packed.qkv.begin() + 166 * packed.stride());
  std::copy(document.dout.begin(), document.dout.end(),
            packed.dout.begin() + 166 * packed.q_size());
  const AttentionResults together = RunOnDevice(context, route, packed);
  const auto rows = [&](const Floats& values, int64_t width) {
    return Floats(values.begin() + 166 * width, values.begin() + (166 + length) * width);
  };
  EXPECT_EQ(rows(together.out, packed.q_size()), alone.out);
  EXPECT_EQ(rows(together.lse, 4), alone.lse);
  EXPECT_EQ(rows(together.dqkv, packed.stride()), alone.dqkv);
}

TEST(CudaAttentionIsolationTest, ADocumentDoesNotFeelItsNeighbours) {
  const auto context = ContextOrNull();
  if (context == nullptr) GTEST_SKIP() << "no GPU";
  for (const bool cudnn : {false, true}) {
    if (cudnn && context->get().cudnn == nullptr) continue;
    for (const int64_t head_dim :
         cudnn ? std::vector<int64_t>{64, 128} : std::vector<int64_t>{24, 128, 160, 256}) {
      for (const int64_t window : {0, 3, 64}) {
        for (const int32_t length : {1, 63, 64, 65, 130, 300}) {
          SCOPED_TRACE(absl::StrCat(cudnn, " ", head_dim, " ", window, " ", length));
          ExpectIsolated(context->get(), {.cudnn = cudnn}, head_dim, window, length);
        }
      }
    }
  }
}

// Nor does one that is too long for cuDNN, beside others that are not.
TEST(CudaAttentionIsolationTest, ALongDocumentDoesNotFeelItsNeighbours) {
  const auto context = ContextOrNull();
  if (context == nullptr) GTEST_SKIP() << "no GPU";
  if (context->get().cudnn == nullptr) GTEST_SKIP() << "no cuDNN";
  for (const int64_t window : {0, 64}) {
    ExpectIsolated(context->get(), {.cudnn = true, .plan_bytes = 1 << 20}, 128, window, 600);
  }
  // By blocks of 1,024, the last of them short.
  ExpectIsolated(context->get(), {.cudnn = true, .plan_bytes = 16 << 20}, 128, 0, 2600);
}

// Refuses every shape, and tells whether it was asked.
class RefusingCudnn : public cuda::CudnnAttention {
 public:
  absl::StatusOr<int64_t> Prepare(const cuda::CudnnAttentionShape&) override {
    asked = true;
    return absl::UnimplementedError("");
  }
  absl::Status Run(const cuda::CudnnAttentionShape&, const cuda::CudnnAttentionArrays&,
                   void*) override {
    return absl::InternalError("");
  }
  bool asked = false;
};

// Whether is decided before anything is launched, so this needs no device.
TEST(CudnnAttentionRouteTest, WideHeadsAreLeftToOurOwnKernels) {
  for (const int64_t head_dim : {kLargestCudnnHeadDim, kLargestCudnnHeadDim + 8}) {
    const AttentionInputs inputs = RandomInputs({{0, 8}, 2, 1, head_dim, 0, 0.2});
    std::vector<uint4> memory(1 << 18);  // aligned; never read
    auto* const array = reinterpret_cast<bf16*>(memory.data());
    const AttentionArrays<bf16> arrays{
        .qkv = array,
        .dout = array,
        .out = array,
        .lse = reinterpret_cast<float*>(array),
        .dqkv = array,
        .starts = nullptr,
        .scratch = array,
        .scratch_bytes = static_cast<int64_t>(memory.size() * sizeof(uint4))};
    RefusingCudnn forward, backward;
    cuda::Context context{};
    context.cudnn = &forward;
    EXPECT_FALSE(*cuda::attention::ForwardByCudnn(context, ForwardArgs(inputs, arrays)));
    context.cudnn = &backward;
    EXPECT_FALSE(*cuda::attention::BackwardByCudnn(context, BackwardArgs(inputs, arrays)));
    EXPECT_EQ(forward.asked, head_dim <= kLargestCudnnHeadDim) << head_dim;
    EXPECT_EQ(backward.asked, head_dim <= kLargestCudnnHeadDim) << head_dim;
  }
}

// One context for all, as plans take long to build.
class CudnnAttentionTest : public testing::TestWithParam<CudaCase> {
 protected:
  static void SetUpTestSuite() { context_ = ContextOrNull(); }
  static void TearDownTestSuite() { context_.reset(); }
  void SetUp() override {
    if (context_ == nullptr) GTEST_SKIP() << "no GPU";
    if (context_->get().cudnn == nullptr) GTEST_SKIP() << "no cuDNN";
  }
  static inline std::unique_ptr<cuda::OwnedContext> context_;
};

TEST_P(CudnnAttentionTest, EqualsTheReferenceAndRepeats) {
  ExpectParity(GetParam(), context_->get());
}

std::vector<CudaCase> CudnnCases() {
  const std::vector<int32_t> packed = {0, 0, 1, 3, 66, 130, 195, 325, 325, 628};
  // 600 rows have class 1,024, of which a head takes 2 MiB and more: by groups, or by our kernels.
  const int64_t groups_bytes = int64_t{11} << 20, long_bytes = int64_t{2} << 20;
  std::vector<int32_t> many = {0};
  for (int i = 0; i < 150; ++i) many.push_back(many.back() + 1 + i % 5);
  std::vector<CudaCase> cases;
  for (const int64_t window : {0, 1, 3, 64, 65, 1000}) {
    cases.push_back(Case("Packed", packed, 4, 4, 128, window, {.cudnn = true}));
    cases.push_back(Case("Packed", packed, 4, 2, 64, window, {.cudnn = true}));
    cases.push_back(Case("Packed", packed, 7, 1, 128, window, {.cudnn = true}));
  }
  for (const int64_t window : {0, 100}) {
    cases.push_back(Case("Groups", {0, 20, 620}, 6, 3, 128, window,
                         {.cudnn = true, .plan_bytes = groups_bytes}));
    cases.push_back(Case("Long", {0, 20, 620, 700, 1300}, 4, 2, 64, window,
                         {.cudnn = true, .plan_bytes = long_bytes}));
  }
  // Three blocks of queries, for one key/value head at a time and for both.
  for (const int64_t mib : {9, 16}) {
    cases.push_back(Case(absl::StrCat("Blocks", mib, "MiB"), {0, 20, 2120}, 4, 2, 64, 0,
                         {.cudnn = true, .plan_bytes = mib << 20}));
  }
  cases.push_back(Case("Many", many, 3, 1, 64, 0, {.cudnn = true}));
  cases.push_back(Case("None", {0}, 2, 1, 64, 0, {.cudnn = true}));
  cases.push_back(Case("OneToken", {0, 1}, 1, 1, 64, 0, {.cudnn = true}));
  cases.push_back(Case("Odd", {0, 200}, 2, 1, 80, 0, {.cudnn = true}));
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ops, CudnnAttentionTest, testing::ValuesIn(CudnnCases()),
                         [](const testing::TestParamInfo<CudaCase>& info) {
                           return info.param.name;
                         });

}  // namespace

std::vector<CudaCase> AttentionCudaCases() {
  const std::vector<int32_t> packed = {0, 0, 1, 3, 66, 130, 195, 325, 325};
  std::vector<CudaCase> cases;
  for (const int64_t window : {0, 1, 3, 64, 65, 1000}) {
    cases.push_back(Case("Packed", packed, 4, 4, 8, window));
    cases.push_back(Case("Packed", packed, 4, 2, 64, window));
    cases.push_back(Case("Packed", packed, 4, 1, 10, window));
    cases.push_back(Case("Packed", packed, 7, 1, 128, window));
    cases.push_back(Case("One", {0, 200}, 2, 1, 80, window));
    cases.push_back(Case("Packed", packed, 4, 4, 160, window));
    cases.push_back(Case("Packed", packed, 7, 1, 192, window));
    cases.push_back(Case("Packed", packed, 4, 2, 256, window));
    cases.push_back(Case("One", {0, 200}, 2, 1, 250, window));
  }
  cases.push_back(Case("Long", {0, 20, 1500}, 2, 1, 256, 0));
  cases.push_back(Case("Long", {0, 20, 1500}, 2, 1, 256, 512));
  cases.push_back(Case("None", {0}, 2, 1, 8, 0));
  cases.push_back(Case("Empty", {0, 0, 0}, 2, 1, 8, 0));
  cases.push_back(Case("OneToken", {0, 1}, 1, 1, 2, 0));
  cases.push_back(Case("OneToken", {0, 1}, 1, 1, 256, 0));
  return cases;
}

}  // namespace penstock
