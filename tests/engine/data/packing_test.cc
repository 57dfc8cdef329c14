#include "engine/data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "engine/base/units.h"

namespace penstock {
namespace {

std::vector<int64_t> RandomLengths(uint32_t seed, int64_t documents, int64_t longest) {
  std::mt19937 random(seed);
  std::vector<int64_t> lengths(documents);
  for (int64_t& length : lengths) length = 1 + random() % longest;
  return lengths;
}

EpochPlanArgs Args(const std::vector<int64_t>& lengths, int64_t sequence_length,
                   Packing packing = Packing::kPacked, int64_t epoch = 0) {
  return {.document_lengths = lengths,
          .sequence_length = sequence_length,
          .packing = packing,
          .seed = 11,
          .epoch = epoch};
}

// Every token once, windows only where the rule cuts them, no row overfull.
void CheckPlan(const EpochPlan& plan, const EpochPlanArgs& args) {
  std::vector<int64_t> next(args.document_lengths.size(), 0);
  std::vector<Piece> pieces = plan.pieces;
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.document, a.start) < std::tie(b.document, b.start);
  });
  for (const Piece& piece : pieces) {
    ASSERT_EQ(piece.start, next[piece.document]);
    const int64_t left = args.document_lengths[piece.document] - piece.start;
    if (args.packing == Packing::kWrapped) {
      ASSERT_LE(piece.length, std::min(left, args.sequence_length));
    } else {
      ASSERT_EQ(piece.length, std::min(left, args.sequence_length));
    }
    next[piece.document] += piece.length;
  }
  for (size_t d = 0; d < next.size(); ++d) ASSERT_EQ(next[d], args.document_lengths[d]);
  ASSERT_EQ(plan.row_begin.front(), 0);
  ASSERT_EQ(plan.row_begin.back(), static_cast<int64_t>(plan.pieces.size()));
  for (int64_t r = 0; r < plan.rows(); ++r) {
    int64_t tokens = 0;
    for (const Piece& piece : plan.Row(r)) tokens += piece.length;
    ASSERT_GE(tokens, 1);
    ASSERT_LE(tokens, args.sequence_length);
  }
}

TEST(EpochPlanTest, UsesEveryTokenOnceInRowsThatFit) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const int64_t sequence_length = 1 + seed * 7 % 150;
    const auto lengths = RandomLengths(seed, 1 + seed * 5, 1 + seed * 13 % 400);
    for (const Packing packing : {Packing::kPacked, Packing::kPadded, Packing::kWrapped}) {
      for (const RowOrder order : {RowOrder::kShuffled, RowOrder::kSequential}) {
        EpochPlanArgs args = Args(lengths, sequence_length, packing, seed);
        args.order = order;
        const EpochPlan plan = MakeEpochPlan(args);
        CheckPlan(plan, args);
        if (packing == Packing::kPadded) {
          EXPECT_EQ(plan.rows(), CountWindows(lengths, sequence_length));
        }
        EXPECT_LE(static_cast<int64_t>(plan.pieces.size()),
                  2 * CountWindows(lengths, sequence_length));
      }
    }
  }
}

TEST(EpochPlanTest, IsAFunctionOfSeedAndEpoch) {
  const auto lengths = RandomLengths(1, 300, 90);
  for (const Packing packing : {Packing::kPacked, Packing::kPadded, Packing::kWrapped}) {
    const EpochPlan first = MakeEpochPlan(Args(lengths, 64, packing, 0));
    const EpochPlan again = MakeEpochPlan(Args(lengths, 64, packing, 0));
    EXPECT_EQ(first.pieces, again.pieces);
    EXPECT_EQ(first.row_begin, again.row_begin);
    EXPECT_NE(first.pieces, MakeEpochPlan(Args(lengths, 64, packing, 1)).pieces);
    EpochPlanArgs other = Args(lengths, 64, packing, 0);
    other.seed = 12;
    EXPECT_NE(first.pieces, MakeEpochPlan(other).pieces);
  }
}

// Not only the order of rows: which window stands beside which changes too.
TEST(EpochPlanTest, EpochsPackDifferentNeighbours) {
  const std::vector<int64_t> lengths(100, 10);
  std::set<std::set<int64_t>> rows[2];
  for (int epoch = 0; epoch < 2; ++epoch) {
    const EpochPlan plan = MakeEpochPlan(Args(lengths, 20, Packing::kPacked, epoch));
    for (int64_t r = 0; r < plan.rows(); ++r) {
      std::set<int64_t> row;
      for (const Piece& piece : plan.Row(r)) row.insert(piece.document);
      rows[epoch].insert(row);
    }
  }
  EXPECT_NE(rows[0], rows[1]);
}

TEST(EpochPlanTest, NumberOfRowsIsTheSameInEveryEpochAndForEverySeed) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const auto lengths = RandomLengths(seed, 200, 120);
    const int64_t rows = MakeEpochPlan(Args(lengths, 100)).rows();
    for (int64_t epoch = 1; epoch < 10; ++epoch) {
      EpochPlanArgs args = Args(lengths, 100, Packing::kPacked, epoch);
      args.seed = seed * 1000 + epoch;
      EXPECT_EQ(MakeEpochPlan(args).rows(), rows);
    }
    EpochPlanArgs sequential = Args(lengths, 100);
    sequential.order = RowOrder::kSequential;
    EXPECT_EQ(MakeEpochPlan(sequential).rows(), rows);
  }
}

TEST(EpochPlanTest, TakesTheBestFit) {
  // 6 and 7 open rows of 10 with room 4 and 3; 3 goes to the row of 7, 4 to that of 6.
  const std::vector<int64_t> lengths = {3, 6, 4, 7};
  const EpochPlan plan = MakeEpochPlan(Args(lengths, 10));
  ASSERT_EQ(plan.rows(), 2);
  for (int64_t r = 0; r < 2; ++r) {
    ASSERT_EQ(plan.Row(r).size(), 2u);
    EXPECT_EQ(plan.Row(r)[0].length + plan.Row(r)[1].length, 10);
  }
}

TEST(EpochPlanTest, PacksTightly) {
  const auto lengths = RandomLengths(5, 5000, 1000);
  int64_t tokens = 0;
  for (const int64_t length : lengths) tokens += length;
  const int64_t rows = MakeEpochPlan(Args(lengths, 1024)).rows();
  EXPECT_LE(rows, CeilDiv(tokens, 1024) * 102 / 100);
}

TEST(EpochPlanTest, SequentialPaddedRowsAreInDocumentOrder) {
  const std::vector<int64_t> lengths = {5, 2, 7};
  EpochPlanArgs args = Args(lengths, 4, Packing::kPadded, 9);
  args.order = RowOrder::kSequential;
  const std::vector<Piece> wanted = {{0, 0, 4}, {0, 4, 1}, {1, 0, 2}, {2, 0, 4}, {2, 4, 3}};
  EXPECT_EQ(MakeEpochPlan(args).pieces, wanted);
}

TEST(EpochPlanTest, WrappedRowsAreFullButOne) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const auto lengths = RandomLengths(seed, 50 + seed, 40);
    int64_t tokens = 0;
    for (const int64_t length : lengths) tokens += length;
    const EpochPlan plan = MakeEpochPlan(Args(lengths, 64, Packing::kWrapped, seed));
    ASSERT_EQ(plan.rows(), CeilDiv(tokens, 64));
    int64_t short_rows = 0;
    for (int64_t r = 0; r < plan.rows(); ++r) {
      int64_t filled = 0;
      for (const Piece& piece : plan.Row(r)) filled += piece.length;
      short_rows += filled < 64 ? 1 : 0;
    }
    EXPECT_EQ(short_rows, tokens % 64 == 0 ? 0 : 1);
  }
}

TEST(EpochPlanTest, NoDocumentsAreNoRows) {
  EXPECT_EQ(MakeEpochPlan(Args({}, 8)).rows(), 0);
  EXPECT_EQ(MakeEpochPlan(Args({}, 8, Packing::kWrapped)).rows(), 0);
  EXPECT_EQ(CountWindows({}, 8), 0);
}

// Quadratic packing would not end in the test's time.
TEST(EpochPlanTest, AMillionWindowsArePacked) {
  const auto lengths = RandomLengths(2, 1'000'000, 300);
  const EpochPlanArgs args = Args(lengths, 256);
  CheckPlan(MakeEpochPlan(args), args);
}

}  // namespace
}  // namespace penstock
