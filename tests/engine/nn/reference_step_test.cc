// Whole optimizer steps against Hugging Face transformers and torch.optim.AdamW, for every way
// in which the planner may cut the same step: micro-batches, padding, save levels, slots, rows
// of logits, rows of the MLP, threads.
//
// Weights are compared with those of a step with a wide epsilon: tests/testdata/reference/
// make_reference.py says why, and reference_optimizer_test.cc has the narrow one.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/nn/comparison.h"
#include "tests/engine/nn/reference_case.h"
#include "tests/engine/nn/step_run.h"

namespace penstock {
namespace {

constexpr double kGradientBound = 1e-5;
constexpr double kUpdateBound = 1e-6;
// Between two cuts of one step: both are fp32, so each may be off by its own rounding.
constexpr double kSplitBound = 1e-6;

int64_t LongestDocument(const ReferenceCase& reference) {
  int64_t longest = 0;
  for (size_t d = 0; d + 1 < reference.document_starts.size(); ++d) {
    longest =
        std::max<int64_t>(longest, reference.document_starts[d + 1] - reference.document_starts[d]);
  }
  return longest;
}

// The first one is the plainest: everything in one micro-batch, everything saved.
std::vector<StepVariant> Variants(const ReferenceCase& reference) {
  const int64_t all = reference.tokens(), longest = LongestDocument(reference);
  const Policy plain = {
      .saving = {.level = SaveLevel::kAll}, .decoder_slots = 2, .head_chunk_rows = 512};
  return {
      {.tokens_per_micro_batch = all, .policy = plain},
      {.tokens_per_micro_batch = all + 13, .policy = plain},
      {.tokens_per_micro_batch = longest, .policy = plain},
      {.tokens_per_micro_batch = longest + 2,
       .policy = {.saving = {.level = SaveLevel::kAttention},
                  .decoder_slots = 1,
                  .head_chunk_rows = 8,
                  .mlp_chunk_rows = 7}},
      {.tokens_per_micro_batch = longest + 5,
       .policy = {.saving = {.level = SaveLevel::kInput},
                  .decoder_slots = 3,
                  .head_chunk_rows = 5,
                  .mlp_chunk_rows = 16},
       .threads = 2},
  };
}

class ReferenceStepTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    absl::StatusOr<ReferenceCase> loaded = LoadReferenceCase(GetParam());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    reference_ = *std::move(loaded);
  }

  std::unique_ptr<StepRun> Create(const StepVariant& variant) const {
    absl::StatusOr<std::unique_ptr<StepRun>> run =
        StepRun::Create(reference_, variant, reference_.wide_epsilon);
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? *std::move(run) : nullptr;
  }

  void ExpectResult(const StepResult& result) const {
    EXPECT_EQ(result.decision.outcome, StepOutcome::kApplied);
    const double loss = result.loss_sum / static_cast<double>(result.labelled_tokens);
    EXPECT_NEAR(loss / reference_.value("loss")[0], 1, kGradientBound);
    EXPECT_NEAR(result.decision.grad_norm / reference_.value("grad_norm")[0], 1, kGradientBound);
    EXPECT_NEAR(result.decision.clip_scale * result.decision.grad_norm / reference_.max_norm, 1,
                1e-12);
  }

  // `kind`: the prefix of the names under which the reference has these tensors.
  void ExpectClose(const TensorMap& got, const std::string& kind, double bound) {
    ASSERT_EQ(got.size(), reference_.weights.size());
    for (const auto& [name, values] : got) {
      const Difference difference =
          Compare(values, reference_.value(absl::StrCat(kind, ".", name)));
      EXPECT_LE(difference.worst(), bound) << kind << "." << name << " " << difference;
      worst_[kind] = std::max(worst_[kind], difference.worst());
    }
  }

  void TearDown() override {
    for (const auto& [kind, worst] : worst_) RecordProperty("worst_" + kind, absl::StrCat(worst));
  }

  ReferenceCase reference_;
  std::map<std::string, double> worst_;
};

TEST_P(ReferenceStepTest, EveryCutOfTheStepMatches) {
  for (const StepVariant& variant : Variants(reference_)) {
    SCOPED_TRACE(testing::PrintToString(variant));
    const std::unique_ptr<StepRun> run = Create(variant);
    ASSERT_NE(run, nullptr);
    ASSERT_EQ(run->micro_batches() > 1, variant.tokens_per_micro_batch < reference_.tokens());
    const absl::StatusOr<StepResult> result = run->Step();
    ASSERT_TRUE(result.ok()) << result.status();
    ExpectResult(*result);
    ExpectClose(run->Gradients(), "grad", kGradientBound);
    ExpectClose(run->Weights(), "wide", kUpdateBound);
    if (reference_.steps < 2) continue;
    const absl::StatusOr<StepResult> second = run->Step();
    ASSERT_TRUE(second.ok()) << second.status();
    ExpectClose(run->Weights(), "wide2", kUpdateBound);
  }
}

TEST_P(ReferenceStepTest, CutsAgreeWithEachOther) {
  StepResult first;
  TensorMap first_weights;
  for (const StepVariant& variant : Variants(reference_)) {
    SCOPED_TRACE(testing::PrintToString(variant));
    const std::unique_ptr<StepRun> run = Create(variant);
    ASSERT_NE(run, nullptr);
    const absl::StatusOr<StepResult> result = run->Step();
    ASSERT_TRUE(result.ok()) << result.status();
    if (first_weights.empty()) {
      first = *result;
      first_weights = run->Weights();
      continue;
    }
    EXPECT_EQ(result->labelled_tokens, first.labelled_tokens);
    EXPECT_NEAR(result->loss_sum / first.loss_sum, 1, kSplitBound);
    EXPECT_NEAR(result->decision.grad_norm / first.decision.grad_norm, 1, kSplitBound);
    for (const auto& [name, weight] : run->Weights()) {
      const Difference difference = Compare(weight, first_weights.at(name));
      EXPECT_LE(difference.worst(), kSplitBound) << name << " " << difference;
    }
  }
}

// Recomputed tensors are the bits that would have been saved, and slots and threads change
// nothing but time.
TEST_P(ReferenceStepTest, SaveLevelsSlotsAndThreadsGiveTheSameBits) {
  TensorMap gradients, weights;
  for (const SaveLevel level : {SaveLevel::kAll, SaveLevel::kAttention, SaveLevel::kInput}) {
    for (const int slots : {1, 2, 3}) {
      const StepVariant variant = {
          .tokens_per_micro_batch = LongestDocument(reference_) + 1,
          .policy = {.saving = {.level = level}, .decoder_slots = slots, .mlp_chunk_rows = 9},
          .threads = slots};
      SCOPED_TRACE(testing::PrintToString(variant));
      const std::unique_ptr<StepRun> run = Create(variant);
      ASSERT_NE(run, nullptr);
      const absl::StatusOr<StepResult> result = run->Step();
      ASSERT_TRUE(result.ok()) << result.status();
      if (weights.empty()) {
        gradients = run->Gradients();
        weights = run->Weights();
      }
      EXPECT_EQ(run->Gradients(), gradients);
      EXPECT_EQ(run->Weights(), weights);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ReferenceStepTest, testing::ValuesIn(ReferenceCaseNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace penstock
