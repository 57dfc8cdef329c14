// Our decoder against Hugging Face transformers: every family and every switch of a family.
//
// The bounds are those of fp32 arithmetic done carefully; tests/testdata/reference/NOISE.txt
// tells how far the reference itself is from float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/nn/comparison.h"
#include "tests/engine/nn/decoder_run.h"
#include "tests/engine/nn/reference_case.h"

namespace penstock {
namespace {

constexpr double kBound = 1e-5;
// Does not divide any case's number of tokens: the last chunk of the head is a partial one.
constexpr int64_t kHeadChunkRows = 8;

class ReferenceTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    absl::StatusOr<ReferenceCase> loaded = LoadReferenceCase(GetParam());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    reference_ = *std::move(loaded);
    absl::StatusOr<DecoderResult> result =
        RunDecoder(reference_, {.head_chunk_rows = kHeadChunkRows});
    ASSERT_TRUE(result.ok()) << result.status();
    result_ = *std::move(result);
  }

  ReferenceCase reference_;
  DecoderResult result_;
};

TEST_P(ReferenceTest, LossMatches) {
  EXPECT_NEAR(result_.loss / reference_.value("loss")[0], 1, kBound);
}

TEST_P(ReferenceTest, LogitsMatch) {
  const Difference difference = Compare(result_.logits, reference_.value("logits"));
  EXPECT_LE(difference.worst(), kBound) << difference;
  RecordProperty("worst", absl::StrCat(difference.worst()));
}

TEST_P(ReferenceTest, EveryGradientMatches) {
  double worst = 0;
  for (const auto& [name, weight] : reference_.weights) {
    ASSERT_TRUE(result_.gradients.contains(name)) << name;
    const Difference difference =
        Compare(result_.gradients[name], reference_.value(absl::StrCat("grad.", name)));
    EXPECT_LE(difference.worst(), kBound) << name << " " << difference;
    worst = std::max(worst, difference.worst());
  }
  EXPECT_EQ(result_.gradients.size(), reference_.weights.size());
  RecordProperty("worst", absl::StrCat(worst));
}

INSTANTIATE_TEST_SUITE_P(Cases, ReferenceTest, testing::ValuesIn(ReferenceCaseNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace penstock
