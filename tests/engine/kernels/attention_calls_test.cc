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

// How often a call takes a row, for each key/value head.
using Counts = std::map<std::pair<int32_t, int64_t>, int>;

void Count(const Document& document, int64_t first_head, int64_t heads, Counts& counts) {
  for (int32_t row = document.begin; row < document.begin + document.rows; ++row) {
    for (int64_t head = 0; head < heads; ++head) ++counts[{row, first_head + head}];
  }
}

void Count(const Call& call, Counts& counts) {
  ASSERT_GT(call.count, 0);
  ASSERT_LE(call.count, call.batch);
  ASSERT_LE(call.batch, Call::kMaxDocuments);
  for (int64_t i = 0; i < call.count; ++i) {
    ASSERT_GT(call.documents[i].rows, 0);
    ASSERT_LE(call.documents[i].rows, call.longest);
    Count(call.documents[i], call.first_kv_head, call.num_kv_heads, counts);
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
                return absl::OkStatus();
              }).ok());
  ExpectOnce(counts, shape);
}

TEST_P(AttentionCallsTest, BackwardTakesEveryRowOnceWithinItsBytes) {
  const AttentionShape shape{starts_.back(), 6, 3, 64};
  for (const int64_t bytes : {int64_t{1} << 30, int64_t{8} << 20, int64_t{1} << 18, int64_t{0}}) {
    Counts counts;
    const auto visit = [&](const Call& call) {
      Count(call, counts);
      EXPECT_LE(BackwardPlanBytes(shape, call.longest, {call.batch, call.num_kv_heads}), bytes);
      return absl::OkStatus();
    };
    const auto visit_long = [&](const Document& document) {
      Count(document, 0, shape.num_kv_heads, counts);
      EXPECT_GT(BackwardPlanBytes(shape, LengthClass(document.rows), {1, 1}), bytes);
      return absl::OkStatus();
    };
    ASSERT_TRUE(
        ForEachBackwardCall(shape, starts_.data(), documents_, bytes, visit, visit_long).ok());
    ExpectOnce(counts, shape);
  }
}

INSTANTIATE_TEST_SUITE_P(Packings, AttentionCallsTest,
                         testing::Values(std::vector<int32_t>{}, std::vector<int32_t>{0, 0},
                                         std::vector<int32_t>{1}, std::vector<int32_t>{128, 129},
                                         std::vector<int32_t>{5000},
                                         std::vector<int32_t>{1024, 0, 1024, 1000, 513, 512},
                                         std::vector<int32_t>(300, 3), RandomLengths(8192, 400, 1),
                                         RandomLengths(8192, 30, 2)));

TEST(AttentionCalls, CutsByDocumentsThenByHeadsThenNotAtAll) {
  const AttentionShape shape{16384, 28, 4, 128};
  const auto cut = [&](int64_t length_class) {
    return CutBackward(shape, length_class, kMostPlanBytes);
  };
  EXPECT_EQ(cut(128).batch, 128);
  EXPECT_EQ(cut(1024).batch, 8);
  EXPECT_EQ(cut(1024).num_kv_heads, 4);
  EXPECT_EQ(cut(4096).batch, 1);
  EXPECT_EQ(cut(4096).num_kv_heads, 4);
  EXPECT_EQ(cut(8192).batch, 1);
  EXPECT_EQ(cut(8192).num_kv_heads, 1);
  EXPECT_EQ(cut(16384).batch, 0);
}

TEST(AttentionCalls, LongDocumentsGoByTheLargestBlocksThatFit) {
  const AttentionShape shape{131072, 28, 4, 128};
  const auto cut = [&](int64_t rows, int64_t bytes) { return CutIntoBlocks(shape, rows, bytes); };
  EXPECT_EQ(cut(16384, kMostPlanBytes).block, 8192);
  EXPECT_EQ(cut(16384, kMostPlanBytes).num_kv_heads, 1);
  EXPECT_EQ(cut(131072, kMostPlanBytes).block, 4096);
  EXPECT_EQ(cut(131072, kMostPlanBytes).num_kv_heads, 2);
  EXPECT_EQ(cut(131072, int64_t{100} << 20).block, 0);
  EXPECT_EQ(CutIntoBlocks({131072, 4, 4, 128}, 131072, kMostPlanBytes).block, 0) << "no groups";
  for (int64_t bytes = int64_t{1} << 28; bytes <= int64_t{1} << 33; bytes = bytes / 2 * 3) {
    const BlockCut fits = cut(131072, bytes);
    if (fits.block == 0) continue;
    EXPECT_LE(PlaceBlocks(shape, 131072, fits).bytes, bytes);
    EXPECT_EQ(shape.num_kv_heads % fits.num_kv_heads, 0);
  }
}

// Else a document's kernels, and its bits, would depend on how many rows lie beside it.
TEST(AttentionCalls, WhatGoesThroughCudnnDoesNotDependOnTheRows) {
  for (int64_t rows = 128; rows <= 131072; rows *= 2) {
    const AttentionShape shape{rows, 28, 4, 128};
    const int64_t bytes = CudaAttentionScratchBytes(shape) - kTableBytes - kRoundingBytes;
    for (int64_t length = kShortestClass; length <= LengthClass(rows); length *= 2) {
      EXPECT_EQ(CutBackward(shape, length, bytes).batch > 0, length <= 8192) << rows;
    }
  }
}

TEST(AttentionCalls, ScratchSuitsTheRows) {
  EXPECT_LT(CudaAttentionScratchBytes({1024, 28, 4, 128}), int64_t{400} << 20);
  EXPECT_LT(CudaAttentionScratchBytes({131072, 28, 4, 128}), int64_t{1026} << 20);
  EXPECT_LT(CudaAttentionScratchBytes({128, 4, 2, 16}), int64_t{32} << 20);
  EXPECT_EQ(CudaAttentionScratchBytes({0, 4, 2, 16}), 0);
  EXPECT_EQ(CudaAttentionScratchBytes({16384, 8, 4, 256}),
            LeastCudaAttentionScratchBytes(16384, 8));
}

}  // namespace
}  // namespace penstock::attention
