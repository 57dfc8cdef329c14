// How attention is cut into cuDNN's calls: every row and head once, within the planned bytes.
#include "engine/kernels/attention_calls.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace penstock::attention {
namespace {

std::vector<int32_t> Starts(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> starts = {0};
  for (const int32_t length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

std::vector<int32_t> RandomLengths(int64_t rows, double mean, uint32_t seed) {
  std::mt19937 random(seed);
  std::exponential_distribution<double> length(1 / mean);
  std::vector<int32_t> lengths;
  for (int64_t left = rows; left > 0; left -= lengths.back()) {
    lengths.push_back(static_cast<int32_t>(std::min<double>(left, length(random))));
  }
  return lengths;
}

// How often a call takes a row as a query and as a key of its own, for each head.
using Counts = std::map<std::pair<int32_t, int64_t>, int>;

void Count(const Call& call, Counts& counts) {
  ASSERT_GT(call.count, 0);
  ASSERT_LE(call.count, call.batch);
  ASSERT_LE(call.batch, Call::kMaxDocuments);
  for (int64_t i = 0; i < call.count; ++i) {
    const DocumentPart& part = call.parts[i];
    ASSERT_GT(part.query_count, 0);
    ASSERT_LE(part.query_count, call.queries);
    ASSERT_LE(part.key_count, call.keys);
    ASSERT_EQ(part.query_begin + part.query_count, part.key_begin + part.key_count);
    for (int32_t row = part.query_begin; row < part.query_begin + part.query_count; ++row) {
      for (int64_t head = 0; head < call.num_kv_heads; ++head) {
        ++counts[{row, call.first_kv_head + head}];
      }
    }
  }
}

void ExpectOnce(const Counts& counts, const AttentionShape& shape) {
  EXPECT_EQ(static_cast<int64_t>(counts.size()), shape.rows * shape.num_kv_heads);
  for (const auto& [where, count] : counts) {
    ASSERT_EQ(count, 1) << where.first << " " << where.second;
  }
}

class AttentionCallsTest : public testing::TestWithParam<std::vector<int32_t>> {
 protected:
  std::vector<int32_t> starts_ = Starts(GetParam());
  int64_t documents_ = static_cast<int64_t>(GetParam().size());
};

TEST_P(AttentionCallsTest, ForwardTakesEveryRowOnce) {
  const AttentionShape shape{starts_.back(), 6, 3, 64};
  Counts counts;
  ASSERT_TRUE(ForEachForwardCall(shape, starts_.data(), documents_, [&](const Call& call) {
                Count(call, counts);
                EXPECT_EQ(call.queries, call.keys);
                return absl::OkStatus();
              }).ok());
  ExpectOnce(counts, shape);
}

TEST_P(AttentionCallsTest, BackwardTakesEveryRowOnceWithinItsBytes) {
  const AttentionShape shape{starts_.back(), 6, 3, 64};
  for (const int64_t score_bytes : {int64_t{1} << 30, int64_t{8} << 20, int64_t{1} << 18}) {
    for (const int64_t window : {0, 50}) {
      Counts counts;
      ASSERT_TRUE(ForEachBackwardCall(
                      shape, window, starts_.data(), documents_, score_bytes,
                      [&](const Call& call) {
                        Count(call, counts);
                        const int64_t scores =
                            2 * call.batch * 2 * call.num_kv_heads * call.queries * call.keys;
                        EXPECT_TRUE(scores <= score_bytes || call.queries == kShortestClass)
                            << scores;
                        EXPECT_LE(scores, BackwardPlanBytes(shape, call.keys, score_bytes));
                        EXPECT_EQ(call.summand, SummandBytes(shape, call.keys, score_bytes) > 0);
                        return absl::OkStatus();
                      })
                      .ok());
      ExpectOnce(counts, shape);
    }
  }
}

// The chunks' keys are all that their queries see, and no more than a window's worth before.
TEST_P(AttentionCallsTest, ChunksSeeTheirKeys) {
  const AttentionShape shape{starts_.back(), 2, 1, 64};
  for (const int64_t window : {0, 50}) {
    ASSERT_TRUE(ForEachBackwardCall(
                    shape, window, starts_.data(), documents_, 1 << 16,
                    [&](const Call& call) {
                      if (!call.summand) return absl::OkStatus();
                      const DocumentPart& part = call.parts[0];
                      const int64_t query = part.query_begin - call.document_begin;
                      const int64_t key = part.key_begin - call.document_begin;
                      EXPECT_EQ(key, window == 0 ? 0 : std::max<int64_t>(0, query - window + 1));
                      EXPECT_EQ(call.first_summand, query == 0);
                      EXPECT_EQ(call.last_summand, query + part.query_count == call.document_rows);
                      return absl::OkStatus();
                    })
                    .ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Packings, AttentionCallsTest,
                         testing::Values(std::vector<int32_t>{}, std::vector<int32_t>{0, 0},
                                         std::vector<int32_t>{1}, std::vector<int32_t>{128, 129},
                                         std::vector<int32_t>{5000},
                                         std::vector<int32_t>{1024, 0, 1024, 1000, 513, 512},
                                         std::vector<int32_t>(300, 3), RandomLengths(8192, 400, 1),
                                         RandomLengths(8192, 30, 2)));

TEST(AttentionCalls, TheCutOfALengthClassIsTheSameWhateverElseIsPacked) {
  const AttentionShape shape{16384, 28, 4, 128};
  const auto cut = [&](int64_t length_class) {
    return CutBackward(shape, length_class, kScoreBytes);
  };
  EXPECT_EQ(cut(1024).batch, 8);
  EXPECT_EQ(cut(1024).num_kv_heads, 4);
  EXPECT_EQ(cut(4096).batch, 1);
  EXPECT_EQ(cut(4096).num_kv_heads, 2);
  EXPECT_EQ(cut(4096).queries, 4096);
  EXPECT_EQ(cut(16384).num_kv_heads, 1);
  EXPECT_EQ(cut(16384).queries, 2048);
}

TEST(AttentionCalls, ScratchHoldsEveryClassAndStaysSmall) {
  for (const int64_t rows : {1, 128, 1024, 16384, 131072}) {
    const AttentionShape shape{rows, 28, 4, 128};
    const int64_t bytes = CudaAttentionScratchBytes(shape);
    for (int64_t length = kShortestClass; length <= LengthClass(rows); length *= 2) {
      EXPECT_GE(bytes, kTableBytes + BackwardPlanBytes(shape, length, kScoreBytes) +
                           SummandBytes(shape, length, kScoreBytes))
          << rows << " " << length;
    }
    EXPECT_GE(bytes, rows * 28 * 4);
  }
  EXPECT_LT(CudaAttentionScratchBytes({16384, 28, 4, 128}), int64_t{800} << 20);
  EXPECT_LT(CudaAttentionScratchBytes({131072, 28, 4, 128}), int64_t{1400} << 20);
  EXPECT_LT(CudaAttentionScratchBytes({128, 4, 2, 16}), int64_t{32} << 20);
  EXPECT_EQ(CudaAttentionScratchBytes({0, 4, 2, 16}), 0);
}

}  // namespace
}  // namespace penstock::attention
