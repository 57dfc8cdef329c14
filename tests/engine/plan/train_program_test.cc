#include "engine/plan/train_program.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "engine/base/status.h"
#include "engine/plan/step_decision.h"
#include "engine/plan/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/plan/plan_testing.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

StepProgram Build(int64_t layers, HeadWeights head, const Policy& policy, int32_t micro_batches) {
  const ModelSpec spec = TinySpec(layers, head);
  const auto program = BuildTrainProgram(
      spec, MakeLayout(spec), policy,
      {.micro_batches = micro_batches, .tokens_per_micro_batch = 8, .kernel_scratch_bytes = 512});
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

std::map<int32_t, int> FetchesByBlock(const StepProgram& program) {
  std::map<int32_t, int> fetches;
  for (const Op& op : program.ops) {
    if (const auto* fetch = std::get_if<FetchWeights>(&op.body)) ++fetches[Index(fetch->block)];
  }
  return fetches;
}

int64_t BytesOf(const StepProgram& program, BufferClass buffer_class) {
  return BytesByClass(program, Arena::kDevice)[buffer_class];
}

// The program as text, against a file that people read in review. To accept a change:
// PENSTOCK_UPDATE_GOLDEN=1 ctest -R train_program_test
void ExpectGolden(const StepProgram& program, const std::string& name) {
  const std::string path =
      std::string(std::getenv("PENSTOCK_TESTDATA")) + "/../engine/plan/golden/" + name;
  const std::string text = ToText(program);
  if (std::getenv("PENSTOCK_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::stringstream expected;
  expected << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, expected.str()) << "differs from " << path;
}

TEST(TrainProgramTest, TiedModelMatchesGolden) {
  ExpectGolden(Build(3, HeadWeights::kTiedToEmbedding,
                     {.saving = {.level = SaveLevel::kAttention}, .decoder_slots = 2}, 2),
               "tied_3_layers_2_micro_batches_save_attention.txt");
}

TEST(TrainProgramTest, UntiedModelMatchesGolden) {
  ExpectGolden(Build(2, HeadWeights::kSeparate,
                     {.saving = {.level = SaveLevel::kAll}, .decoder_slots = 1}, 1),
               "untied_2_layers_1_micro_batch_save_all.txt");
}

TEST(TrainProgramTest, EvaluationMatchesGolden) {
  const ModelSpec spec = TinySpec(3, HeadWeights::kSeparate);
  const auto program = BuildEvaluationProgram(
      spec, MakeLayout(spec), {.decoder_slots = 2},
      {.micro_batches = 1, .tokens_per_micro_batch = 8, .kernel_scratch_bytes = 512});
  ASSERT_TRUE(program.ok()) << program.status();
  ExpectGolden(*program, "evaluation_3_layers.txt");
}

TEST(TrainProgramTest, KeepsTheLastSlotsAtTheTurn) {
  for (int slots : {1, 2, 4, 6}) {
    const StepProgram program = Build(6, HeadWeights::kSeparate, {.decoder_slots = slots}, 1);
    int fetches = 0;
    for (const auto& [block, count] : FetchesByBlock(program)) {
      if (block >= 1 && block <= 6) fetches += count;
    }
    EXPECT_EQ(fetches, 2 * 6 - slots) << slots << " slots";
  }
}

TEST(TrainProgramTest, FetchesDoNotGrowWithMicroBatches) {
  EXPECT_EQ(FetchesByBlock(Build(5, HeadWeights::kSeparate, {}, 1)),
            FetchesByBlock(Build(5, HeadWeights::kSeparate, {}, 7)));
}

TEST(TrainProgramTest, SavingLessTakesLessMemory) {
  const auto saved = [](SaveLevel level) {
    return BytesOf(Build(4, HeadWeights::kSeparate, {.saving = {.level = level}}, 2),
                   BufferClass::kSaved);
  };
  EXPECT_GT(saved(SaveLevel::kAll), saved(SaveLevel::kAttention));
  EXPECT_GT(saved(SaveLevel::kAttention), 0);
  EXPECT_EQ(saved(SaveLevel::kInput), 0);
}

TEST(TrainProgramTest, LogitsExistForOneChunkOnly) {
  ModelSpec spec = TinySpec(1, HeadWeights::kTiedToEmbedding);
  spec.vocab_size = 131072;
  const auto bytes = [&](int64_t tokens) {
    const auto program = BuildTrainProgram(spec, MakeLayout(spec), {.head_chunk_rows = 16},
                                           {.tokens_per_micro_batch = tokens});
    EXPECT_TRUE(program.ok()) << program.status();
    for (const Buffer& buffer : program->buffers) {
      if (buffer.name == "scratch") return buffer.bytes;
    }
    return int64_t{-1};
  };
  EXPECT_GE(bytes(64), 16 * spec.vocab_size * 4);
  EXPECT_LT(bytes(4096), 32 * spec.vocab_size * 4);
}

TEST(TrainProgramTest, RefusesABudgetThatIsTooSmallWithTheNumbers) {
  const ModelSpec spec = TinySpec(3, HeadWeights::kSeparate);
  const auto program = BuildTrainProgram(spec, MakeLayout(spec), {},
                                         {.tokens_per_micro_batch = 8, .arena_budget_bytes = 4096});
  EXPECT_EQ(program.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(program.status()), reason::kDeviceMemoryInsufficient);
  EXPECT_EQ(MetadataOf(program.status())["usable_bytes"], "4096");
  EXPECT_THAT(std::string(program.status().message()), HasSubstr("saved tensors"));
}

TEST(TrainProgramTest, ObeysABudgetExactly) {
  const ModelSpec spec = TinySpec(3, HeadWeights::kSeparate);
  ProgramShape shape{.tokens_per_micro_batch = 8};
  const auto unlimited = BuildTrainProgram(spec, MakeLayout(spec), {}, shape);
  ASSERT_TRUE(unlimited.ok());
  shape.arena_budget_bytes = unlimited->arena_bytes;
  EXPECT_TRUE(BuildTrainProgram(spec, MakeLayout(spec), {}, shape).ok());
  shape.arena_budget_bytes -= 1;
  EXPECT_FALSE(BuildTrainProgram(spec, MakeLayout(spec), {}, shape).ok());
}

TEST(StepDecisionTest, AppliesClipsOrSkips) {
  const double nan = std::nan(""), inf = INFINITY;
  EXPECT_EQ(DecideStep(3.0, 2, 16.0, 0).clip_scale, 1.0);
  EXPECT_EQ(DecideStep(3.0, 2, 16.0, 4.0).clip_scale, 1.0);
  EXPECT_EQ(DecideStep(3.0, 2, 16.0, 1.0).clip_scale, 0.25);
  EXPECT_EQ(DecideStep(3.0, 2, 16.0, 1.0).grad_norm, 4.0);
  EXPECT_EQ(DecideStep(0.0, 0, 0.0, 1.0).outcome, StepOutcome::kSkippedNoLabels);
  for (double max_grad_norm : {0.0, 1.0}) {
    for (double bad : {nan, inf}) {
      EXPECT_EQ(DecideStep(3.0, 2, bad, max_grad_norm).outcome, StepOutcome::kSkippedNonFinite);
      EXPECT_EQ(DecideStep(bad, 2, 1.0, max_grad_norm).outcome, StepOutcome::kSkippedNonFinite);
    }
  }
}

// A fetch into the slot of the block that is being computed would start only after it.
TEST(TrainProgramTest, FetchesGoToASlotThatIsNotInUse) {
  for (int slots : {2, 3, 4}) {
    const StepProgram program = Build(7, HeadWeights::kSeparate, {.decoder_slots = slots}, 1);
    BufferId in_use = kNoBuffer;
    int fetches = 0;
    for (const Op& op : program.ops) {
      if (const auto* forward = std::get_if<ForwardBlock>(&op.body)) in_use = forward->weights;
      if (const auto* backward = std::get_if<BackwardBlock>(&op.body)) in_use = backward->weights;
      if (const auto* fetch = std::get_if<FetchWeights>(&op.body)) {
        EXPECT_NE(fetch->weights, in_use) << ToText(program);
        ++fetches;
      }
    }
    EXPECT_EQ(fetches, 2 + 2 * 7 - slots);
  }
}

}  // namespace
}  // namespace penstock
