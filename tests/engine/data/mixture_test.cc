#include "engine/data/mixture.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace penstock {
namespace {

using Lengths = std::vector<std::vector<int64_t>>;

Lengths RandomLengths(uint32_t seed, const std::vector<int64_t>& documents) {
  std::mt19937 random(seed);
  Lengths lengths;
  for (const int64_t count : documents) {
    lengths.emplace_back(count);
    for (int64_t& length : lengths.back()) length = 1 + random() % 60;
  }
  return lengths;
}

MixtureArgs Args(const Lengths& lengths, const std::vector<double>& weights,
                 Packing packing = Packing::kPacked) {
  MixtureArgs args{.sequence_length = 32, .packing = packing, .seed = 3};
  int64_t first = 0;
  for (size_t p = 0; p < lengths.size(); ++p) {
    args.parts.push_back(
        {.first_document = first, .document_lengths = lengths[p], .weight = weights[p]});
    first += static_cast<int64_t>(lengths[p].size());
  }
  return args;
}

// How often each token of each document is in the plan.
std::map<std::pair<int64_t, int64_t>, int64_t> TokenCounts(const EpochPlan& plan) {
  std::map<std::pair<int64_t, int64_t>, int64_t> counts;
  for (const Piece& piece : plan.pieces) {
    for (int64_t i = 0; i < piece.length; ++i) ++counts[{piece.document, piece.start + i}];
  }
  return counts;
}

TEST(MixtureTest, OnePartOfWeightOneIsItsOwnEpochs) {
  const Lengths lengths = RandomLengths(1, {40});
  const Mixture mixture(Args(lengths, {1}));
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const EpochPlan own = MakeEpochPlan(
        {.document_lengths = lengths[0], .sequence_length = 32, .seed = 3, .epoch = epoch});
    EXPECT_EQ(mixture.MakePlan(epoch).pieces, own.pieces);
    EXPECT_EQ(mixture.MakePlan(epoch).row_begin, own.row_begin);
  }
}

TEST(MixtureTest, WeightsAreSharesOfRowsAndEveryEpochHasTheSameNumber) {
  const Lengths lengths = RandomLengths(2, {100, 37, 5});
  for (const Packing packing : {Packing::kPacked, Packing::kPadded, Packing::kWrapped}) {
    const Mixture mixture(Args(lengths, {1, 2.5, 0.001}, packing));
    EXPECT_EQ(mixture.RowsInEpoch(0), mixture.OwnRows(0));
    EXPECT_NEAR(static_cast<double>(mixture.RowsInEpoch(1)),
                2.5 * static_cast<double>(mixture.OwnRows(1)), 0.5);
    EXPECT_EQ(mixture.RowsInEpoch(2), 1);
    for (int64_t epoch = 0; epoch < 6; ++epoch) {
      const EpochPlan plan = mixture.MakePlan(epoch);
      ASSERT_EQ(plan.rows(), mixture.rows_per_epoch());
      std::vector<int64_t> rows(3, 0);
      for (int64_t r = 0; r < plan.rows(); ++r) {
        const int64_t document = plan.Row(r)[0].document;
        const int64_t part = document < 100 ? 0 : document < 137 ? 1 : 2;
        ++rows[part];
        for (const Piece& piece : plan.Row(r)) {
          ASSERT_EQ(piece.document < 100 ? 0 : piece.document < 137 ? 1 : 2, part);
        }
      }
      for (int64_t p = 0; p < 3; ++p) EXPECT_EQ(rows[p], mixture.RowsInEpoch(p));
    }
  }
}

// Weight 2/5: five epochs of the mixture are two of the part, not a row more or less.
TEST(MixtureTest, FractionsComeRoundWithoutLosingOrRepeatingATokenBefore) {
  const Lengths lengths = {{32, 30, 20, 11, 10, 31, 5, 29, 28, 27, 64}, std::vector<int64_t>(9, 9)};
  const Mixture probe(Args(lengths, {1, 1}));
  const double weight = 2.0 / static_cast<double>(probe.OwnRows(0));
  const Mixture mixture(Args(lengths, {weight, 1}));
  ASSERT_EQ(mixture.RowsInEpoch(0), 2);
  std::map<std::pair<int64_t, int64_t>, int64_t> counts;
  for (int64_t epoch = 0; epoch < mixture.OwnRows(0); ++epoch) {
    for (const auto& [token, count] : TokenCounts(mixture.MakePlan(epoch))) counts[token] += count;
    if (2 * (epoch + 1) > mixture.OwnRows(0)) continue;
    for (const auto& [token, count] : counts) {
      ASSERT_TRUE(token.first >= 11 || count == 1) << token.first;
    }
  }
  for (int64_t document = 0; document < 11; ++document) {
    for (int64_t i = 0; i < lengths[0][document]; ++i) {
      EXPECT_EQ((counts[{document, i}]), 2);
    }
  }
}

TEST(MixtureTest, WholeWeightsRepeatEveryToken) {
  const Lengths lengths = RandomLengths(4, {20, 30});
  const EpochPlan plan = Mixture(Args(lengths, {3, 1}, Packing::kWrapped)).MakePlan(7);
  for (const auto& [token, count] : TokenCounts(plan)) {
    ASSERT_EQ(count, token.first < 20 ? 3 : 1);
  }
}

TEST(MixtureTest, PartsAreShuffledTogetherAndDifferentlyInEveryEpoch) {
  const Lengths lengths = {std::vector<int64_t>(100, 32), std::vector<int64_t>(100, 32)};
  const Mixture mixture(Args(lengths, {1, 1}));
  const EpochPlan first = mixture.MakePlan(0);
  EXPECT_NE(first.pieces, mixture.MakePlan(1).pieces);
  EXPECT_EQ(first.pieces, mixture.MakePlan(0).pieces);
  int64_t early = 0;  // rows of part 0 in the first half
  for (int64_t r = 0; r < 100; ++r) early += first.Row(r)[0].document < 100 ? 1 : 0;
  EXPECT_GT(early, 25);
  EXPECT_LT(early, 75);
}

TEST(MixtureTest, SequentialIsPartAfterPartWithoutWeights) {
  const Lengths lengths = {{40, 10}, {5}};
  MixtureArgs args = Args(lengths, {3, 0.5}, Packing::kPadded);
  args.order = RowOrder::kSequential;
  const std::vector<Piece> wanted = {{0, 0, 32}, {0, 32, 8}, {1, 0, 10}, {2, 0, 5}};
  EXPECT_EQ(Mixture(args).MakePlan(0).pieces, wanted);
}

}  // namespace
}  // namespace penstock
