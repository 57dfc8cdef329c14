// The MLP in chunks of rows against the MLP at once, over every family and switch.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/nn/comparison.h"
#include "tests/engine/nn/decoder_run.h"
#include "tests/engine/nn/reference_case.h"

namespace penstock {
namespace {

// Both are fp32; sums over rows are rounded once a chunk.
constexpr double kGradientBound = 2e-6;
// BLAS may sum a row in another order where there are fewer of them.
constexpr double kLogitsBound = 1e-6;

class DecoderChunksTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    absl::StatusOr<ReferenceCase> loaded = LoadReferenceCase(GetParam());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    reference_ = *std::move(loaded);
  }

  DecoderResult Run(int64_t mlp_chunk_rows, SaveLevel saved = SaveLevel::kAll) const {
    absl::StatusOr<DecoderResult> result = RunDecoder(
        reference_, {.head_chunk_rows = 512, .mlp_chunk_rows = mlp_chunk_rows, .saved = saved});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : DecoderResult{};
  }

  ReferenceCase reference_;
};

TEST_P(DecoderChunksTest, ChunksAgreeWithTheWhole) {
  const DecoderResult whole = Run(0);
  for (const int64_t rows : {int64_t{1}, int64_t{3}, int64_t{16}, reference_.tokens() - 1}) {
    SCOPED_TRACE(rows);
    const DecoderResult chunked = Run(rows);
    const Difference logits = Compare(chunked.logits, whole.logits);
    EXPECT_LE(logits.worst(), kLogitsBound) << logits;
    ASSERT_EQ(chunked.gradients.size(), whole.gradients.size());
    for (const auto& [name, gradient] : chunked.gradients) {
      const Difference difference = Compare(gradient, whole.gradients.at(name));
      EXPECT_LE(difference.worst(), kGradientBound) << name << " " << difference;
    }
  }
}

TEST_P(DecoderChunksTest, OneChunkIsTheWhole) {
  const DecoderResult whole = Run(0);
  for (const int64_t rows : {reference_.tokens(), reference_.tokens() + 7}) {
    const DecoderResult chunked = Run(rows);
    EXPECT_EQ(chunked.logits, whole.logits);
    EXPECT_EQ(chunked.gradients, whole.gradients);
  }
}

// Saved chunks lie one after the other, recomputed ones all in one place.
TEST_P(DecoderChunksTest, SaveLevelsGiveTheSameBits) {
  for (const int64_t rows : {int64_t{0}, int64_t{5}, int64_t{32}}) {
    SCOPED_TRACE(rows);
    const DecoderResult saved = Run(rows);
    for (const SaveLevel level : {SaveLevel::kAttention, SaveLevel::kInput}) {
      const DecoderResult recomputed = Run(rows, level);
      EXPECT_EQ(recomputed.logits, saved.logits);
      EXPECT_EQ(recomputed.gradients, saved.gradients);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DecoderChunksTest, testing::ValuesIn(ReferenceCaseNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace penstock
