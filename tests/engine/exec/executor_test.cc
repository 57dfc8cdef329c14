// The CPU executor on whole steps. Run under the thread sanitizer too: lanes are threads, and a
// hazard that a program misses is a data race here.
#include "engine/exec/executor.h"

#include <cmath>
#include <limits>
#include <string>

#include "engine/base/labels.h"
#include "engine/base/status.h"
#include "engine/exec/gpu_devices.h"
#include "engine/memory/planes.h"
#include "engine/plan/hazards.h"
#include "engine/plan/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/exec/random_program.h"
#include "tests/engine/exec/tiny_job.h"
#include "tests/engine/plan/plan_testing.h"
#include "tests/engine/plan/policies.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

double RelativeDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

TEST(ExecutorTest, RandomValidProgramsGiveTheSameBits) {
  const auto documents = RandomDocuments(6, 1);
  for (HeadWeights head : {HeadWeights::kTiedToEmbedding, HeadWeights::kSeparate}) {
    TinyJob plain({.head = head, .threads = 2}, documents);
    plain.Run(2);
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const Policy policy{.saving = {.level = static_cast<SaveLevel>(seed % 3)},
                          .decoder_slots = 1 + static_cast<int>(seed % 4)};
      TinyJob job({.head = head, .policy = policy, .threads = 2}, documents);
      const StepProgram scrambled = Scramble(job.program(), seed);
      ASSERT_TRUE(Verify(scrambled).ok()) << Verify(scrambled);
      ASSERT_EQ(scrambled.ops.size(), job.program().ops.size());
      for (int step = 0; step < 2; ++step) {
        const auto result = job.TryRun(scrambled);
        ASSERT_TRUE(result.ok()) << result.status();
      }
      EXPECT_EQ(job.State(), plain.State()) << "seed " << seed << "\n" << ToText(scrambled);
    }
  }
}

TEST(ExecutorTest, EverySaveLevelSlotCountAndThreadCountGivesTheSameBits) {
  const auto documents = RandomDocuments(7, 2);
  TinyJob reference({}, documents);
  reference.Run(3);
  for (SaveLevel level : {SaveLevel::kAll, SaveLevel::kAttention, SaveLevel::kInput}) {
    for (int slots : {1, 2, 3, 5}) {
      for (int threads : {1, 2, 3}) {
        TinyJob job(
            {.policy = {.saving = {.level = level}, .decoder_slots = slots}, .threads = threads},
            documents);
        job.Run(3);
        EXPECT_EQ(job.State(), reference.State())
            << static_cast<int>(level) << " " << slots << " slots " << threads << " threads";
      }
    }
  }
}

// Where things lie, in which rounds micro-batches go and when the update runs change no bit.
TEST(ExecutorTest, EveryPolicyGivesTheSameBits) {
  const auto documents = RandomDocuments(9, 14);
  for (GradientType type : {GradientType::kFloat32, GradientType::kBfloat16}) {
    for (HeadWeights head : {HeadWeights::kTiedToEmbedding, HeadWeights::kSeparate}) {
      TinyJob reference({.head = head, .policy = {.gradient_type = type}}, documents);
      ASSERT_GT(reference.program().micro_batches, 2);
      const StepResult first = reference.Run(2);
      const double loss = reference.Evaluate();
      const StepResult expected = reference.Run(2);
      for (const auto& [name, policy] : PoliciesFor(3, type)) {
        // Rounds change the order in which a tied head and the embedding add to one gradient.
        if (head == HeadWeights::kTiedToEmbedding && policy.micro_batches_per_round > 0) continue;
        TinyJob job({.head = head, .policy = policy, .threads = 2}, documents);
        EXPECT_EQ(job.Run(2).loss_sum, first.loss_sum) << name;
        EXPECT_EQ(job.Evaluate(), loss) << name;
        EXPECT_EQ(job.Run(2).decision.grad_norm, expected.decision.grad_norm) << name;
        EXPECT_EQ(job.store().updates_applied, 4) << name;
        EXPECT_TRUE(job.State() == reference.State()) << name;
      }
    }
  }
}

// The maths of an update does not depend on when it runs; without a plane for gradients.
TEST(ExecutorTest, UpdatesWithBackwardGiveTheBitsOfAnUnclippedStep) {
  const auto documents = RandomDocuments(9, 14);
  for (GradientType type : {GradientType::kFloat32, GradientType::kBfloat16}) {
    for (HeadWeights head : {HeadWeights::kTiedToEmbedding, HeadWeights::kSeparate}) {
      TinyJob reference({.head = head, .policy = {.gradient_type = type}}, documents);
      reference.optimizer().max_grad_norm = 0;
      const StepResult expected = reference.Run(3);
      for (const auto& [name, policy] : PoliciesWithBackward(3, type)) {
        if (head == HeadWeights::kTiedToEmbedding && policy.micro_batches_per_round > 0) continue;
        TinyJob job({.head = head, .policy = policy, .threads = 2, .arena_fill = 0xFF}, documents);
        const StepResult result = job.Run(3);
        EXPECT_EQ(result.loss_sum, expected.loss_sum) << name;
        EXPECT_EQ(result.decision.grad_norm, expected.decision.grad_norm) << name;
        EXPECT_EQ(job.Evaluate(), reference.Evaluate()) << name;
        EXPECT_EQ(job.store().updates_applied, 3) << name;
        EXPECT_FALSE(job.store().updating) << name;
        EXPECT_TRUE(job.Gradients().empty()) << name;
        EXPECT_TRUE(job.State() == reference.State()) << name;
      }
    }
  }
}

// The loss is known before the first update.
TEST(ExecutorTest, UpdatesWithBackwardSkipAStepWhoseLossIsNotFinite) {
  TinyJob job({.policy = {.update_time = UpdateTime::kWithBackward}}, RandomDocuments(5, 7));
  job.Run(2);
  BlockStore& block = job.store().block(BlockId{2});
  const int64_t at = job.store().layout().blocks[2].OffsetOf(Role::kUpWeight);
  const SplitValue bad = Split(std::nanf(""));
  block.hi[at] = bad.hi;
  block.lo[at] = bad.lo;
  const auto state = job.State();
  EXPECT_EQ(job.Run().decision.outcome, StepOutcome::kSkippedNonFinite);
  EXPECT_EQ(job.store().updates_applied, 2);
  EXPECT_EQ(job.State(), state);
}

TEST(ExecutorTest, UpdatesWithBackwardRefuseToClip) {
  TinyJob job({.policy = {.update_time = UpdateTime::kWithBackward}}, RandomDocuments(5, 7));
  job.optimizer().max_grad_norm = 1;
  const auto state = job.State();
  EXPECT_THAT(std::string(job.TryRun(job.program()).status().message()), HasSubstr("clips at 1"));
  EXPECT_EQ(job.State(), state);
}

// BC-15: what lay in memory before shows in no bit. 0xFF makes NaN of every number.
TEST(ExecutorTest, Bc15WhatTheArenaHeldBeforeDoesNotMatter) {
  const auto documents = RandomDocuments(9, 19);
  for (const auto& [name, policy] : PoliciesFor(3, GradientType::kBfloat16)) {
    TinyJob zeros({.policy = policy, .arena_fill = 0}, documents);
    TinyJob poison({.policy = policy, .arena_fill = 0xFF}, documents);
    EXPECT_EQ(zeros.Run(2).decision.grad_norm, poison.Run(2).decision.grad_norm) << name;
    EXPECT_TRUE(zeros.State() == poison.State()) << name;
  }
}

TEST(ExecutorTest, RoundedGradientsFollowExactOnes) {
  const auto documents = RandomDocuments(9, 15);
  TinyJob exact({}, documents),
      rounded({.policy = {.gradient_type = GradientType::kBfloat16}}, documents);
  EXPECT_EQ(exact.Run().loss_sum, rounded.Run().loss_sum);
  EXPECT_LT(RelativeDifference(rounded.Gradients(), exact.Gradients()), 1.0 / 256);
  EXPECT_NE(rounded.Gradients(), exact.Gradients());
}

// An evaluation between a step and its update would see weights of the step before.
TEST(ExecutorTest, RefusesToRunBesideAPendingUpdate) {
  const Policy deferred{.update_time = UpdateTime::kNextStep};
  TinyJob job({.policy = deferred}, RandomDocuments(5, 16));
  const auto state = job.State();
  ASSERT_TRUE(job.TryRun(job.program()).ok());
  EXPECT_EQ(job.State(), state);
  EXPECT_EQ(job.store().updates_applied, 0);
  const absl::Status status = job.TryRun(job.evaluation()).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("settle"));
  job.Evaluate();
  EXPECT_NE(job.State(), state);
  EXPECT_EQ(job.store().updates_applied, 1);
}

TEST(ExecutorTest, RefusesGradientsThatTheStoreHasNoPlaneFor) {
  TinyJob job({}, RandomDocuments(3, 17));
  TinyJob rounded({.policy = {.gradient_type = GradientType::kBfloat16}}, RandomDocuments(3, 17));
  const absl::Status status = job.executor().Prepare(rounded.program());
  EXPECT_THAT(std::string(status.message()), HasSubstr("no gradient plane"));
}

TEST(ExecutorTest, EveryCutIntoMicroBatchesAndAnyPaddingGivesTheSameStep) {
  auto documents = RandomDocuments(9, 3);
  // One document with 1 label beside one with 12: a mean of means would be far off.
  documents.push_back({{1, 2}, {2, kIgnoreLabel}});
  for (HeadWeights head : {HeadWeights::kTiedToEmbedding, HeadWeights::kSeparate}) {
    TinyJob whole({.head = head, .cut = {.tokens_per_micro_batch = 128}}, documents);
    const StepResult expected = whole.Run();
    const TinyCut cuts[] = {{16, 0}, {16, 3}, {32, 0}, {32, 19}, {64, 1}, {256, 0}, {13, 0}};
    for (const TinyCut& cut : cuts) {
      TinyJob job({.head = head, .cut = cut}, documents);
      const StepResult result = job.Run();
      EXPECT_EQ(result.labelled_tokens, expected.labelled_tokens);
      EXPECT_NEAR(result.loss_sum / expected.loss_sum, 1, 1e-6);
      EXPECT_NEAR(result.decision.grad_norm / expected.decision.grad_norm, 1, 1e-6);
      EXPECT_LT(RelativeDifference(job.Gradients(), whole.Gradients()), 1e-6);
      EXPECT_LT(RelativeDifference(job.Weights(), whole.Weights()), 1e-6);
    }
  }
}

TEST(ExecutorTest, LogitChunksDoNotChangeTheStep) {
  const auto documents = RandomDocuments(9, 4);
  TinyJob whole({.cut = {.tokens_per_micro_batch = 128}}, documents);
  const StepResult expected = whole.Run();
  for (int64_t rows : {1, 7, 64}) {
    TinyJob job({.policy = {.head_chunk_rows = rows}, .cut = {.tokens_per_micro_batch = 128}},
                documents);
    EXPECT_NEAR(job.Run().loss_sum / expected.loss_sum, 1, 1e-6);
    EXPECT_LT(RelativeDifference(job.Gradients(), whole.Gradients()), 1e-6);
  }
}

TEST(ExecutorTest, ADocumentDoesNotSeeItsNeighbours) {
  auto documents = RandomDocuments(3, 5);
  documents[0].labels.assign(documents[0].labels.size(), kIgnoreLabel);
  TinyJob before({.cut = {.tokens_per_micro_batch = 64}}, documents);
  const double loss = before.Run().loss_sum;
  for (int32_t& id : documents[0].ids) id = (id + 11) % 40;
  TinyJob after({.cut = {.tokens_per_micro_batch = 64}}, documents);
  EXPECT_EQ(after.Run().loss_sum, loss);
  // Its own embedding rows get no gradient either, since nobody looks at it.
  EXPECT_EQ(after.Gradients(), before.Gradients());
}

TEST(ExecutorTest, StepWithoutLabelsChangesNothing) {
  auto documents = RandomDocuments(4, 6);
  for (TinyDocument& document : documents) {
    document.labels.assign(document.labels.size(), kIgnoreLabel);
  }
  TinyJob job({}, documents);
  const auto state = job.State();
  const StepResult result = job.Run();
  EXPECT_EQ(result.decision.outcome, StepOutcome::kSkippedNoLabels);
  EXPECT_EQ(result.loss_sum, 0);
  EXPECT_EQ(job.State(), state);
  EXPECT_EQ(job.store().updates_applied, 0);
}

// Poison in one weight makes the gradient norm Inf or NaN, with the loss finite or not.
TEST(ExecutorTest, NonFiniteNormChangesNothing) {
  const auto documents = RandomDocuments(5, 7);
  for (double max_grad_norm : {0.0, 1.0}) {
    for (float poison : {3e38f, std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity(), std::nanf("")}) {
      TinyJob job({}, documents);
      job.optimizer().max_grad_norm = max_grad_norm;
      job.Run(2);
      BlockStore& block = job.store().block(BlockId{2});
      const int64_t at = job.store().layout().blocks[2].OffsetOf(Role::kUpWeight);
      const SplitValue good{block.hi[at], block.lo[at]};
      const SplitValue bad = Split(poison);
      block.hi[at] = bad.hi;
      block.lo[at] = bad.lo;
      const auto state = job.State();
      EXPECT_EQ(job.Run().decision.outcome, StepOutcome::kSkippedNonFinite) << poison;
      EXPECT_EQ(job.State(), state);
      EXPECT_EQ(job.store().updates_applied, 2);
      // The next step is as if the bad one had never been.
      block.hi[at] = good.hi;
      block.lo[at] = good.lo;
      EXPECT_EQ(job.Run().decision.outcome, StepOutcome::kApplied);
      TinyJob clean({}, documents);
      clean.optimizer().max_grad_norm = max_grad_norm;
      clean.Run(3);
      EXPECT_EQ(job.State(), clean.State());
    }
  }
}

TEST(ExecutorTest, ClippingUsesTheGlobalNorm) {
  const auto documents = RandomDocuments(5, 8);
  TinyJob free({}, documents), clipped({}, documents);
  free.optimizer().max_grad_norm = 0;
  clipped.optimizer().max_grad_norm = 1e-3;
  const StepResult a = free.Run(), b = clipped.Run();
  double sum = 0;
  for (float gradient : free.Gradients()) sum += static_cast<double>(gradient) * gradient;
  EXPECT_NEAR(a.decision.grad_norm / std::sqrt(sum), 1, 1e-9);
  EXPECT_EQ(a.decision.grad_norm, b.decision.grad_norm);
  EXPECT_EQ(a.decision.clip_scale, 1);
  EXPECT_DOUBLE_EQ(b.decision.clip_scale, 1e-3 / b.decision.grad_norm);
}

TEST(ExecutorTest, MiscountedLabelsStopTheStepBeforeTheUpdate) {
  const auto documents = RandomDocuments(5, 9);
  TinyJob job({}, documents);
  const auto state = job.State();
  StepResult result;
  ASSERT_TRUE(job.executor().Prepare(job.program()).ok());
  std::vector<int32_t> ids(16, 1), positions(16, 0), labels(16, kIgnoreLabel), starts{0, 16};
  labels[0] = 3;
  const std::vector<MicroBatchView> views(
      job.program().micro_batches,
      {ids.data(), positions.data(), labels.data(), starts.data(), 1, 16});
  const absl::Status status = job.executor().Run(
      job.program(), {.micro_batches = views, .labelled_tokens = 99, .optimizer = job.optimizer()},
      result);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("99"));
  EXPECT_EQ(job.State(), state);
}

// An op that fails stops the program; the message names it, and the executor goes on to run
// other programs.
TEST(ExecutorTest, FirstFailureStopsTheProgramAndNamesTheOp) {
  const auto documents = RandomDocuments(5, 10);
  TinyJob job({}, documents);
  ASSERT_TRUE(job.executor().Prepare(job.program()).ok());
  // A micro-batch whose documents do not end where the tokens do breaks attention's contract.
  std::vector<int32_t> ids(16, 1), positions(16, 0), labels(16, kIgnoreLabel), starts{0, 9};
  const std::vector<MicroBatchView> views(
      job.program().micro_batches,
      {ids.data(), positions.data(), labels.data(), starts.data(), 1, 16});
  StepResult result;
  const absl::Status status =
      job.executor().Run(job.program(), {.micro_batches = views, .optimizer = {}}, result);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("forward_block block=1 mb=0"));
  EXPECT_EQ(job.Run().decision.outcome, StepOutcome::kApplied);
}

TEST(ExecutorTest, RefusesAProgramThatDoesNotFitItsArena) {
  TinyJob job({}, RandomDocuments(3, 11));
  StepProgram larger = job.program();
  larger.arena_bytes += 1;
  EXPECT_EQ(job.executor().Prepare(larger).code(), absl::StatusCode::kResourceExhausted);
}

TEST(ExecutorTest, TimelineHasEveryOpInOrder) {
  TinyJob job({}, RandomDocuments(5, 12));
  job.Run();
  const auto times = job.executor().timeline();
  const StepProgram& program = job.program();
  ASSERT_EQ(times.size(), program.ops.size());
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_LE(times[i].start_ns, times[i].end_ns);
    for (OpId after : program.ops[i].after) {
      EXPECT_GE(times[i].start_ns, times[Index(after)].end_ns);
    }
  }
}

TEST(CudaExecutorTest, SaysWhatIsMissing) {
  if (!ListGpuDevices().empty()) GTEST_SKIP() << "there is a GPU";
  TinyJob job({}, RandomDocuments(3, 13));
  const ModelSpec spec = TinySpec(3, HeadWeights::kTiedToEmbedding);
  const absl::Status status = CreateCudaExecutor(spec, job.store(), {}).status();
  const bool built = CudaToolkitName() != "none";
  EXPECT_EQ(status.code(),
            built ? absl::StatusCode::kUnavailable : absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ReasonOf(status), reason::kDeviceUnavailable);
}

}  // namespace
}  // namespace penstock
