// A run that stops, in whatever way, and goes on ends with the bytes of one that did not.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "engine/exec/gpu_devices.h"
#include "engine/train/policy_choice.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/resume_fixture.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

using testing::ByteModelConfig;
using testing::DeferringAndPlacing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::ReadState;
using testing::RecordingObserver;
using testing::SomeText;
using testing::UntiedModel;
using testing::WriteFileOrDie;

using Evaluations = std::vector<std::pair<int64_t, double>>;  // step and loss

Evaluations EvaluationsOf(const RecordingObserver& run) {
  Evaluations evaluations;
  for (const EvaluationRecord& record : run.evaluations) {
    evaluations.emplace_back(record.step, record.loss);
  }
  return evaluations;
}

Evaluations Join(Evaluations before, const Evaluations& after) {
  before.insert(before.end(), after.begin(), after.end());
  return before;
}

// BC-32, BC-34
TEST_F(ResumeTest, AnyStepAndTheRestMakeTheWholeRunByteForByte) {
  const TrainConfig whole = Config("whole");
  const RecordingObserver uninterrupted = MustTrain(whole);
  const int64_t total = uninterrupted.total_steps;
  ASSERT_GE(total, 7);
  const auto wanted = ReadState(Checkpoint(whole, total));
  for (int64_t k = 1; k < total; ++k) {
    SCOPED_TRACE(k);
    TrainConfig config = Config(absl::StrCat("run", k));
    const RecordingObserver first = MustTrain(config, k);
    EXPECT_THAT(first.saved, ElementsAre(k));
    config.compute_threads = 2;                   // other threads
    config.batch.save_level = SaveLevel::kInput;  // and another plan
    const RecordingObserver rest = MustTrain(config);
    ASSERT_EQ(rest.resumed.size(), 1u);
    EXPECT_EQ(rest.resumed[0].step, k);
    ExpectSameSteps(uninterrupted.steps, rest.steps, k);
    EXPECT_EQ(Join(EvaluationsOf(first), EvaluationsOf(rest)), EvaluationsOf(uninterrupted));
    // Weights, moments, counters and the manifest itself.
    EXPECT_TRUE(ReadState(Checkpoint(config, total)) == wanted);
  }
}

// The random bits by which moments are rounded are those of the step, not of the process.
TEST_F(ResumeTest, SmallMomentsGoOnByteForByteToo) {
  const auto config_of = [&](const std::string& run, MomentType type) {
    TrainConfig config = Config(run);
    config.model = ModelFromConfig{UntiedModel().dump()};
    config.moment_type = type;
    return config;
  };
  // Of those that small moments allow.
  std::vector<Policy> policies = {{}};
  for (const Policy& policy : DeferringAndPlacing()) {
    const bool state = std::any_of(policy.placements.begin(), policy.placements.end(),
                                   [](const BlockPlacement& placement) { return placement.state; });
    const bool later = policy.update_time == UpdateTime::kNextStepMomentsLater;
    if (!state && !later) policies.push_back(policy);
  }
  ASSERT_EQ(policies.size(), 4u);
  for (const MomentType type : {MomentType::kBfloat16, MomentType::kInt8Blocks}) {
    const std::string name = MomentTypeName(type);
    const TrainConfig whole = config_of(name, type);
    const RecordingObserver uninterrupted = MustTrain(whole);
    const int64_t total = uninterrupted.total_steps;
    ASSERT_GE(total, 7);
    const auto wanted = ReadState(Checkpoint(whole, total));
    EXPECT_THAT(wanted.at("manifest.json"), HasSubstr("\"" + name + "\""));
    for (int64_t k = 1; k < total; ++k) {
      SCOPED_TRACE(absl::StrCat(name, " ", k));
      TrainConfig config = config_of(absl::StrCat(name, k), type);
      MustTrainBy(policies[k % policies.size()], config, k);
      config.compute_threads = 3;
      const RecordingObserver rest = MustTrainBy(policies[(k + 1) % policies.size()], config);
      ASSERT_EQ(rest.resumed.size(), 1u);
      ExpectSameSteps(uninterrupted.steps, rest.steps, k);
      EXPECT_TRUE(ReadState(Checkpoint(config, total)) == wanted);
    }
  }
}

// On other hardware or inside other limits a plan may have other chunks, which change rounding: a
// run that goes on keeps those of its checkpoint, while the rest of its policy is another.
TEST_F(ResumeTest, GoesOnWithTheChunksOfItsCheckpointWhateverElseIsPlanned) {
  constexpr int64_t kRows = 16;
  const TrainConfig whole = Config("whole");
  const PlanChange small_chunks = [&](const ModelInput& model, TrainingPlan& plan) {
    plan.policy.head_chunk_rows = plan.executor.head_chunk_rows = kRows;
    plan.memory.rounding = RoundingWords(whole, model.spec, plan.policy);
  };
  const auto run = [&](const TrainConfig& config, int64_t stop_after) {
    RecordingObserver observer;
    observer.stop_after = stop_after;
    const auto summary = TrainWithPlan(config, small_chunks, observer);
    EXPECT_TRUE(summary.ok()) << summary.status();
    return observer;
  };
  const RecordingObserver uninterrupted = run(whole, INT64_MAX);
  const int64_t total = uninterrupted.total_steps;
  TrainConfig config = Config("cut");
  run(config, 3);
  config.batch.save_level = SaveLevel::kInput;
  config.compute_threads = 2;
  const RecordingObserver rest = MustTrain(config);  // by the planner, who knows of no small chunks
  ExpectSameSteps(uninterrupted.steps, rest.steps, 3);
  EXPECT_THAT(rest.log, Not(HasSubstr("other rounding")));
  EXPECT_EQ(FactsOf(Checkpoint(config, total)).rounding.at("plan.head_chunk_rows"),
            absl::StrCat(kRows));
  EXPECT_TRUE(ReadState(Checkpoint(config, total)) == ReadState(Checkpoint(whole, total)));
  // A new run has chunks of its own.
  const TrainConfig fresh = Config("fresh");
  MustTrain(fresh);
  EXPECT_NE(FactsOf(Checkpoint(fresh, total)).rounding.at("plan.head_chunk_rows"),
            absl::StrCat(kRows));
}

}  // namespace

// Evaluation, two micro-batches a step, an epoch and most of the next; where state lies and when it
// is updated differs before and after.
void ResumeTest::ExpectEveryStepOfFortyAndTheRestMakeTheWholeRun(ComputeBackend backend) {
  constexpr int64_t kSteps = 40;
  const auto config_of = [&](const std::string& run) {
    TrainConfig config = Config(run);
    config.model = ModelFromConfig{UntiedModel().dump()};
    config.device.backend = backend;
    config.data.datasets[0].source.paths = {dir_.Path("longer.txt")};
    config.evaluation.every_steps = 3;
    config.schedule = {.warmup_steps = 25, .max_steps = kSteps};
    config.optimizer.weight_decay = 0.1;
    return config;
  };
  WriteFileOrDie(dir_.Path("longer.txt"), SomeText(1500));
  const TrainConfig whole = config_of("whole");
  const RecordingObserver uninterrupted = MustTrain(whole);
  ASSERT_EQ(uninterrupted.steps.back().epoch, 1) << "counted from 0";
  const auto wanted = ReadState(Checkpoint(whole, kSteps));
  const std::vector<Policy> policies = DeferringAndPlacing();
  for (int64_t k = 1; k < kSteps; ++k) {
    SCOPED_TRACE(k);
    const TrainConfig config = config_of(absl::StrCat("run", k));
    // Each policy comes before and after several others, and after itself.
    const RecordingObserver first = MustTrainBy(policies[k % policies.size()], config, k);
    const RecordingObserver rest =
        MustTrainBy(policies[(k + k / policies.size()) % policies.size()], config);
    ExpectSameSteps(uninterrupted.steps, rest.steps, k);
    EXPECT_EQ(Join(EvaluationsOf(first), EvaluationsOf(rest)), EvaluationsOf(uninterrupted));
    EXPECT_TRUE(ReadState(Checkpoint(config, kSteps)) == wanted);
  }
}

namespace {

TEST_F(ResumeTest, EveryStepOfFortyAndTheRestMakeTheWholeRunWhateverThePolicies) {
  ExpectEveryStepOfFortyAndTheRestMakeTheWholeRun(ComputeBackend::kCpu);
}

TEST_F(ResumeTest, EveryStepOfFortyAndTheRestMakeTheWholeRunOnCuda) {
  if (ListGpuDevices().empty()) GTEST_SKIP() << "no GPU";
  ExpectEveryStepOfFortyAndTheRestMakeTheWholeRun(ComputeBackend::kCuda);
}

TEST_F(ResumeTest, UntiedModelsAndManyStopsToo) {
  nlohmann::json model = ByteModelConfig();
  model["tie_word_embeddings"] = false;
  model["num_hidden_layers"] = 3;
  TrainConfig whole = Config("whole");
  whole.model = ModelFromConfig{model.dump()};
  const int64_t total = MustTrain(whole).total_steps;
  TrainConfig config = Config("stops");
  config.model = whole.model;
  for (int64_t k = 1; k < total; ++k) MustTrain(config, 1);
  MustTrain(config);
  EXPECT_TRUE(ReadState(Checkpoint(config, total)) == ReadState(Checkpoint(whole, total)));
}

TEST_F(ResumeTest, FinishedRunIsNotRunAgain) {
  const TrainConfig config = Config("run");
  const int64_t total = MustTrain(config).total_steps;
  const RecordingObserver again = MustTrain(config);
  EXPECT_THAT(again.steps, IsEmpty());
  EXPECT_THAT(again.saved, IsEmpty());
  EXPECT_EQ(again.resumed[0].step, total);
}

TEST_F(ResumeTest, OtherRoundingIsSaidInTheLog) {
  TrainConfig config = Config("run");
  MustTrain(config, 3);
  config.batch.micro_batch_tokens = 16;
  const RecordingObserver rest = MustTrain(config);
  EXPECT_EQ(rest.resumed.size(), 1u);
  EXPECT_THAT(rest.log, HasSubstr("batch.micro_batch_tokens: 32, now 16"));
}

}  // namespace
}  // namespace penstock
