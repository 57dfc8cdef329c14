// What the parity table cannot say of attention: a document does not feel its neighbours.
#include <algorithm>
#include <numeric>

#include "engine/base/thread_pool.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/attention_fixture.h"

namespace penstock {
namespace {

constexpr int64_t kHeads = 4;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kHeadDim = 24;

AttentionInputs WithDocuments(const std::vector<int32_t>& lengths, int64_t window) {
  std::vector<int32_t> starts = {0};
  for (const int32_t length : lengths) starts.push_back(starts.back() + length);
  return RandomAttention({.starts = starts,
                          .heads = kHeads,
                          .kv_heads = kKvHeads,
                          .head_dim = kHeadDim,
                          .window = window,
                          .scale = 0.2},
                         static_cast<uint32_t>(starts.back()));
}

// Puts the rows of `document` at `row` of `packed`.
void Place(const AttentionInputs& document, int64_t row, AttentionInputs* packed) {
  std::copy(document.qkv.begin(), document.qkv.end(), packed->qkv.begin() + row * packed->stride());
  std::copy(document.dout.begin(), document.dout.end(),
            packed->dout.begin() + row * packed->q_size());
}

Floats Rows(const Floats& values, int64_t width, int64_t begin, int64_t count) {
  return Floats(values.begin() + begin * width, values.begin() + (begin + count) * width);
}

class AttentionIsolationTest : public testing::TestWithParam<int64_t> {};

TEST_P(AttentionIsolationTest, ADocumentHasTheSameBitsWhateverIsBesideIt) {
  ThreadPool pool(2);
  const cpu::Context context{&pool};
  const int64_t window = GetParam();
  for (const int32_t length : {1, 2, 63, 64, 65, 130}) {
    const AttentionInputs document = WithDocuments({length}, window);
    const AttentionResults alone = RunAttention(context, document);
    for (const std::vector<int32_t>& before :
         std::vector<std::vector<int32_t>>{{0}, {1}, {64}, {37, 0, 129}, {3, 3, 3, 3, 3, 3, 3}}) {
      std::vector<int32_t> lengths = before;
      lengths.insert(lengths.end(), {length, 41});
      AttentionInputs packed = WithDocuments(lengths, window);
      const int64_t row = std::accumulate(before.begin(), before.end(), int64_t{0});
      Place(document, row, &packed);
      const AttentionResults together = RunAttention(context, packed);
      EXPECT_EQ(Rows(together.out, packed.q_size(), row, length), alone.out);
      EXPECT_EQ(Rows(together.lse, kHeads, row, length), alone.lse);
      EXPECT_EQ(Rows(together.dqkv, packed.stride(), row, length), alone.dqkv);
    }
  }
}

TEST_P(AttentionIsolationTest, NaNInOneDocumentStaysThere) {
  ThreadPool pool(2);
  AttentionInputs inputs = WithDocuments({70, 5, 70}, GetParam());
  const AttentionResults clean = RunAttention({&pool}, inputs);
  const Floats poison = Poisoned(5 * inputs.stride());
  std::copy(poison.begin(), poison.end(), inputs.qkv.begin() + 70 * inputs.stride());
  const AttentionResults poisoned = RunAttention({&pool}, inputs);
  EXPECT_EQ(Rows(poisoned.dqkv, inputs.stride(), 0, 70), Rows(clean.dqkv, inputs.stride(), 0, 70));
  EXPECT_EQ(Rows(poisoned.dqkv, inputs.stride(), 75, 70),
            Rows(clean.dqkv, inputs.stride(), 75, 70));
  EXPECT_NE(poisoned.out[70 * inputs.q_size()], poisoned.out[70 * inputs.q_size()]);
}

INSTANTIATE_TEST_SUITE_P(Windows, AttentionIsolationTest, testing::Values(0, 1, 3, 64));

}  // namespace
}  // namespace penstock
