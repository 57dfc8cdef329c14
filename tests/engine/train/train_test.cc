// Whole jobs through Train(): what users would lose if a rule below did not hold.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "engine/base/status.h"
#include "engine/engine.h"
#include "engine/train/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

using testing::ByteModelConfig;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::RecordingObserver;
using testing::SomeText;
using testing::TempDir;
using testing::TinyTrainConfig;
using testing::WriteFileOrDie;

class TrainTest : public ::testing::Test {
 protected:
  std::string Data(const std::string& text) {
    const std::string path = dir_.Path("data" + std::to_string(++files_) + ".txt");
    WriteFileOrDie(path, text);
    return path;
  }
  TrainConfig Config(int64_t bytes = 4000) {
    return TinyTrainConfig(dir_.Path("run" + std::to_string(++files_)), Data(SomeText(bytes)));
  }
  // Runs a job that must succeed.
  RecordingObserver MustTrain(const TrainConfig& config) {
    RecordingObserver observer;
    const auto summary = Train(config, observer);
    EXPECT_TRUE(summary.ok()) << summary.status();
    return observer;
  }

  TempDir dir_;
  int files_ = 0;
};

TEST_F(TrainTest, LossFallsAndEveryStepIsReported) {
  TrainConfig config = Config(20000);
  config.schedule.max_steps = 60;
  const RecordingObserver observer = MustTrain(config);
  ASSERT_EQ(observer.steps.size(), 60u);
  EXPECT_NEAR(observer.steps.front().loss, std::log(320), 0.3);
  EXPECT_LT(observer.steps.back().loss, observer.steps.front().loss - 1.5);
  for (size_t i = 0; i < observer.steps.size(); ++i) {
    EXPECT_EQ(observer.steps[i].step, static_cast<int64_t>(i) + 1);
    EXPECT_GT(observer.steps[i].grad_norm, 0);
    EXPECT_GT(observer.steps[i].labelled_tokens, 0);
    EXPECT_LE(observer.steps[i].labelled_tokens, observer.steps[i].real_tokens);
    // The last step of an epoch may be shorter than what was predicted.
    const double predicted = observer.steps[i].predicted_step_seconds;
    EXPECT_TRUE(predicted == 0 || predicted == observer.steps[0].predicted_step_seconds);
  }
  EXPECT_GT(observer.steps[0].predicted_step_seconds, 0);
}

TEST_F(TrainTest, ARunThatMissesItsPlanSaysWhatTheMachineDoes) {
  TrainConfig config = Config(20000);
  config.schedule.max_steps = 12;
  config.compute_threads = 0;  // a CPU's profile is of all its threads
  config.device.profile = CpuProfile(1);
  MachineProfile& rates = config.device.profile->rates;
  rates.op_seconds = 0;
  constexpr double kTooFast = 100;
  for (double* rate : {&rates.matmul_flops, &rates.matmul_bytes, &rates.device_bytes,
                       &rates.attention_forward_flops, &rates.attention_backward_flops,
                       &rates.copy_in_bytes, &rates.copy_out_bytes, &rates.adamw_parameters}) {
    *rate *= kTooFast;
  }
  const RecordingObserver observer = MustTrain(config);
  ASSERT_EQ(observer.misses.size(), 1u);
  const PlanMissRecord& miss = observer.misses[0];
  EXPECT_GT(miss.measured_step_seconds, 10 * miss.predicted_step_seconds);
  // Which of the compute lane's rates is to blame a model this small does not tell.
  const MachineProfile& found = miss.refitted.profile.rates;
  EXPECT_LT(
      std::min({found.matmul_flops / rates.matmul_flops, found.matmul_bytes / rates.matmul_bytes,
                found.device_bytes / rates.device_bytes}),
      0.1);
  EXPECT_EQ(miss.refitted.profile.name, "cpu");
}

TEST_F(TrainTest, SameSeedGivesTheSameRunAndAnotherSeedDoesNot) {
  TrainConfig config = Config();
  config.schedule.max_steps = 6;
  const auto first = MustTrain(config).steps;
  std::filesystem::remove_all(config.checkpoint_directory);
  config.compute_threads = 2;
  const auto second = MustTrain(config).steps;
  std::filesystem::remove_all(config.checkpoint_directory);
  config.seed = 2;
  const auto other = MustTrain(config).steps;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].loss, second[i].loss);
    EXPECT_EQ(first[i].grad_norm, second[i].grad_norm);
  }
  EXPECT_NE(first[0].loss, other[0].loss);
}

// BC-06 (c): five rows, four a step: two updates, the second scaled by its own tokens.
TEST_F(TrainTest, LastStepOfAnEpochUsesWhatIsLeft) {
  std::string text;
  for (int i = 0; i < 5; ++i) text += "abcdefghijklmn\n\n";  // 14 bytes and an end: one row
  TrainConfig config = TinyTrainConfig(dir_.Path("run"), Data(text));
  config.batch.micro_batch_tokens = 16;
  config.schedule.max_steps = 0;
  config.schedule.epochs = 1;
  config.optimizer.learning_rate = 0;
  const auto steps = MustTrain(config).steps;
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].labelled_tokens, 4 * steps[1].labelled_tokens);
  // Rows of 16 with 15 tokens; the last step is one micro-batch of one row.
  EXPECT_EQ(steps[0].real_tokens, 4 * 15);
  EXPECT_EQ(steps[0].padding_tokens, 4);
  EXPECT_EQ(steps[1].real_tokens, 15);
  EXPECT_EQ(steps[1].padding_tokens, 1);
  // All documents are alike and nothing is learned: equal means equal losses and norms.
  EXPECT_NEAR(steps[0].loss, steps[1].loss, 1e-6);
  EXPECT_NEAR(steps[0].grad_norm / steps[1].grad_norm, 1, 1e-5);
}

// BC-21
TEST_F(TrainTest, FiveTokenTextTrainsAtLeastOneStep) {
  for (Packing packing : {Packing::kPacked, Packing::kPadded}) {
    TrainConfig config = TinyTrainConfig(dir_.Path("run" + std::to_string(++files_)), Data("abcd"));
    config.data.packing = packing;
    config.schedule.max_steps = 0;
    config.schedule.epochs = 1;
    const auto steps = MustTrain(config).steps;
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_EQ(steps[0].labelled_tokens, 4);  // "abcd" and the end of the document
    EXPECT_EQ(steps[0].outcome, StepOutcome::kApplied);
  }
}

TEST_F(TrainTest, WarmupThatOutlastsTheEpochsIsRefused) {
  TrainConfig config = Config(1000);
  config.schedule = {.warmup_steps = 1000, .max_steps = 0, .epochs = 1};
  RecordingObserver observer;
  const absl::Status status = Train(config, observer).status();
  EXPECT_EQ(ReasonOf(status), reason::kSpecInvalid);
  EXPECT_EQ(MetadataOf(status)["field"], "schedule.warmup_steps");
  EXPECT_TRUE(observer.steps.empty());
}

TEST_F(TrainTest, EmptyDataIsRefused) {
  RecordingObserver observer;
  const TrainConfig config = TinyTrainConfig(dir_.Path("run"), Data(""));
  const auto summary = Train(config, observer);
  EXPECT_EQ(ReasonOf(summary.status()), reason::kDataInvalid);
  EXPECT_FALSE(std::filesystem::exists(config.checkpoint_directory));
  EXPECT_EQ(ReasonOf(PlanTraining(config).status()), reason::kDataInvalid);
}

// BC-35
TEST_F(TrainTest, FinalCheckpointExistsOnceWhateverTheInterval) {
  struct Case {
    int64_t every, stop_after;
    std::vector<int64_t> saved;
  };
  for (const Case& c :
       {Case{100, INT64_MAX, {7}}, Case{3, INT64_MAX, {3, 6, 7}}, Case{7, INT64_MAX, {7}},
        Case{0, INT64_MAX, {7}}, Case{0, 5, {5}}, Case{5, 5, {5}}}) {
    TrainConfig config = Config();
    config.schedule.max_steps = 7;
    config.checkpoints.every_steps = c.every;
    config.checkpoints.keep_last = 10;
    RecordingObserver observer;
    observer.stop_after = c.stop_after;
    const auto summary = Train(config, observer);
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_EQ(observer.saved, c.saved) << "every " << c.every;
    EXPECT_EQ(summary->end, c.stop_after < 7 ? TrainEnd::kStopped : TrainEnd::kFinished);
    for (int64_t step : c.saved) {
      const auto checkpoint = OpenCheckpoint(
          config.checkpoint_directory + "/" + std::to_string(step), Verification::kHashes);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
      EXPECT_EQ((*checkpoint)->info().step, step);
    }
  }
}

TEST_F(TrainTest, KeepsTheNewestCheckpoints) {
  TrainConfig config = Config();
  config.schedule.max_steps = 9;
  config.checkpoints.every_steps = 2;
  config.checkpoints.keep_last = 2;
  const RecordingObserver observer = MustTrain(config);
  EXPECT_THAT(observer.saved, ElementsAre(2, 4, 6, 8, 9));
  EXPECT_THAT(observer.removed, ElementsAre(2, 4, 6));
  EXPECT_TRUE(std::filesystem::exists(config.checkpoint_directory + "/8"));
  EXPECT_FALSE(std::filesystem::exists(config.checkpoint_directory + "/6"));
}

TEST_F(TrainTest, StoppedBeforeTheFirstStepLeavesNothing) {
  TrainConfig config = Config();
  config.output_directory = dir_.Path("out");
  RecordingObserver observer;
  observer.stop_after = 0;
  const auto summary = Train(config, observer);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->end, TrainEnd::kStopped);
  EXPECT_THAT(observer.saved, IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(config.output_directory));
}

// BC-11 (a, b, c): weights come from the import, every time.
TEST_F(TrainTest, ImportedWeightsSurviveTheFirstSteps) {
  const auto spec = testing::SpecOf(ByteModelConfig());
  for (WeightType type : {WeightType::kFloat32, WeightType::kBFloat16, WeightType::kFloat16}) {
    for (int shards : {1, 3}) {
      const std::string model = dir_.Path("model" + std::to_string(++files_));
      std::filesystem::create_directory(model);
      testing::WriteModel(model, ByteModelConfig(), testing::MakeFiles(spec, type, shards));
      TrainConfig config = Config();
      config.model = ModelFromDirectory{model};
      config.optimizer = {.learning_rate = 0};
      config.schedule.max_steps = 3;
      config.output_directory = dir_.Path("out" + std::to_string(++files_));
      MustTrain(config);
      EXPECT_TRUE(testing::TensorsOf(config.output_directory) == testing::TensorsOf(model))
          << ToString(type) << ", " << shards << " shards";
    }
  }
}

TEST_F(TrainTest, OneStepAtATinyRateMovesWeightsByTheRate) {
  TrainConfig config = Config();
  config.optimizer = {.learning_rate = 1e-7};
  config.schedule = {.shape = ScheduleShape::kConstant, .max_steps = 1};
  MustTrain(config);
  const auto after = *OpenCheckpoint(config.checkpoint_directory + "/1", Verification::kSizes);
  auto moved = testing::MakeStore(after->layout());
  ThreadPool pool(1);
  ASSERT_TRUE(LoadCheckpoint(*after, *moved, pool, testing::NoProgress).ok());
  TrainConfig still = Config();
  still.data = config.data;
  still.optimizer = {.learning_rate = 0};
  still.schedule = config.schedule;
  MustTrain(still);
  const auto before = *OpenCheckpoint(still.checkpoint_directory + "/1", Verification::kSizes);
  auto start = testing::MakeStore(before->layout());
  ASSERT_TRUE(LoadCheckpoint(*before, *start, pool, testing::NoProgress).ok());
  double largest = 0;
  for (const Parameter& parameter : after->layout().blocks[1].parameters) {
    std::vector<float> a(parameter.size), b(parameter.size);
    ASSERT_TRUE(StoreReader(*moved).Read(parameter.name, 0, a).ok());
    ASSERT_TRUE(StoreReader(*start).Read(parameter.name, 0, b).ok());
    for (size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
    }
  }
  EXPECT_GT(largest, 0);
  EXPECT_LE(largest, 1e-6);
}

// BC-09: a row that the data never uses gets no gradient, so decay alone must shrink it.
TEST_F(TrainTest, DecayAloneShrinksUnusedRows) {
  nlohmann::json model = ByteModelConfig();
  model["tie_word_embeddings"] = false;
  TrainConfig config = Config();
  config.model = ModelFromConfig{model.dump()};
  config.optimizer = {.learning_rate = 1e-3, .weight_decay = 0.1};
  config.schedule = {.shape = ScheduleShape::kConstant, .max_steps = 100};
  MustTrain(config);
  TrainConfig still = config;
  still.checkpoint_directory += "-still";
  still.optimizer = {.learning_rate = 0};
  still.schedule.max_steps = 1;
  MustTrain(still);
  ThreadPool pool(1);
  const auto row = [&](const std::string& directory, int step) {
    const auto checkpoint =
        *OpenCheckpoint(directory + "/" + std::to_string(step), Verification::kSizes);
    auto store = testing::MakeStore(checkpoint->layout());
    EXPECT_TRUE(LoadCheckpoint(*checkpoint, *store, pool, testing::NoProgress).ok());
    std::vector<float> values(16);
    EXPECT_TRUE(
        StoreReader(*store).Read("model.embed_tokens.weight", int64_t{300} * 16, values).ok());
    return values;
  };
  const auto end = row(config.checkpoint_directory, 100);
  const auto start = row(still.checkpoint_directory, 1);
  // The factor is an fp32 number, as in torch.
  const double factor = static_cast<float>(1 - 1e-4);
  for (int i = 0; i < 16; ++i) EXPECT_NEAR(end[i] / start[i], std::pow(factor, 100), 1e-6);
}

// BC-07: rows whose labels are all masked make steps without an update, named in the report.
TEST_F(TrainTest, StepsWithoutLabelsAreSkippedAndReported) {
  std::string rows;
  for (int i = 0; i < 8; ++i) {
    const char* labels = i >= 4 ? "-100,-100,-100" : "5,6,7";
    rows += std::string(R"({"ids":[5,6,7],"labels":[)") + labels + "]}\n";
  }
  TrainConfig config = TinyTrainConfig(dir_.Path("run"), Data(rows));
  config.data.datasets[0].source.format = DataFormat::kTokenIdsJsonl;
  config.data.packing = Packing::kPadded;
  config.batch = {.sequence_length = 4, .tokens_per_step = 4, .micro_batch_tokens = 4};
  config.schedule.max_steps = 8;
  const RecordingObserver observer = MustTrain(config);
  int skipped = 0;
  for (const StepRecord& step : observer.steps) {
    if (step.outcome == StepOutcome::kApplied) continue;
    ++skipped;
    EXPECT_EQ(step.outcome, StepOutcome::kSkippedNoLabels);
    EXPECT_EQ(step.labelled_tokens, 0);
    ASSERT_EQ(step.skipped_documents.size(), 1u);
    EXPECT_GE(step.skipped_documents[0], 4);
  }
  EXPECT_EQ(skipped, 4);
  const auto last = *OpenCheckpoint(config.checkpoint_directory + "/8", Verification::kSizes);
  EXPECT_EQ(last->info().updates_applied, 4);
  EXPECT_THAT(observer.log, HasSubstr("4"));
}

// The long prompt of a document fills whole rows, which come before its answer.
TEST_F(TrainTest, RowsWithoutLabelsUseUpNoneOfTheTokensToEvaluate) {
  TrainConfig config = TinyTrainConfig(dir_.Path("run"), Data("{\"ids\":[5,6,7]}\n"));
  config.data.datasets[0].source.format = DataFormat::kTokenIdsJsonl;
  config.batch = {.sequence_length = 4, .tokens_per_step = 4, .micro_batch_tokens = 4};
  config.schedule.max_steps = 1;
  WriteFileOrDie(dir_.Path("held_out.jsonl"),
                 R"({"ids":[1,2,3,4,5,6,7,8,9,10],)"
                 R"("labels":[-100,-100,-100,-100,-100,-100,-100,-100,9,10]})"
                 "\n");
  config.evaluation.datasets = {
      {.source = {.format = DataFormat::kTokenIdsJsonl, .paths = {dir_.Path("held_out.jsonl")}}}};
  config.evaluation.max_tokens = 4;
  const RecordingObserver observer = MustTrain(config);
  ASSERT_EQ(observer.evaluations.size(), 1u);
  EXPECT_GT(observer.evaluations[0].labelled_tokens, 0);
  EXPECT_GT(observer.evaluations[0].loss, 1);
}

TEST_F(TrainTest, DataWithoutAnyLabelIsRefused) {
  TrainConfig config =
      TinyTrainConfig(dir_.Path("run"), Data("{\"ids\":[5,6],\"labels\":[-100,-100]}\n"));
  config.data.datasets[0].source.format = DataFormat::kTokenIdsJsonl;
  RecordingObserver observer;
  EXPECT_EQ(ReasonOf(Train(config, observer).status()), reason::kDataInvalid);
  EXPECT_THAT(observer.saved, IsEmpty());
}

// BC-08: one embedding row is huge; only one document holds its token.
TEST_F(TrainTest, NonFiniteStepsAreSkippedThenFailTheJobWithItsCheckpointSaved) {
  const auto spec = testing::SpecOf(ByteModelConfig());
  auto files = testing::MakeFiles(spec, WeightType::kFloat32, 1);
  std::string& table = testing::FindMade(files, "model.embed_tokens.weight").bytes;
  const float huge = 3e38f;
  for (int i = 0; i < 16; ++i) std::memcpy(&table[(7 * 16 + i) * 4], &huge, 4);
  const std::string model = dir_.Path("model");
  std::filesystem::create_directory(model);
  testing::WriteModel(model, ByteModelConfig(), files);
  std::string rows;
  for (int i = 0; i < 6; ++i) rows += i == 3 ? "[7,8,9]\n" : "[20,21,22]\n";
  for (double max_grad_norm : {0.0, 1.0}) {
    TrainConfig config = TinyTrainConfig(dir_.Path("run" + std::to_string(++files_)), Data(rows));
    config.model = ModelFromDirectory{model};
    config.data.datasets[0].source.format = DataFormat::kTokenIdsJsonl;
    config.data.packing = Packing::kPadded;
    config.batch = {.sequence_length = 4, .tokens_per_step = 4, .micro_batch_tokens = 4};
    config.optimizer.max_grad_norm = max_grad_norm;
    config.schedule.max_steps = 6;
    // A huge row of a tied table reaches every logit, so here every step is poisoned.
    config.optimizer.max_nonfinite_steps = 3;
    RecordingObserver observer;
    const auto summary = Train(config, observer);
    EXPECT_EQ(ReasonOf(summary.status()), reason::kNonFinite) << summary.status();
    ASSERT_EQ(observer.steps.size(), 3u);
    for (const StepRecord& step : observer.steps) {
      EXPECT_EQ(step.outcome, StepOutcome::kSkippedNonFinite);
      EXPECT_EQ(step.skipped_documents.size(), 1u);
    }
    EXPECT_THAT(observer.saved, ElementsAre(3));
    const auto checkpoint =
        *OpenCheckpoint(config.checkpoint_directory + "/3", Verification::kHashes);
    EXPECT_EQ(checkpoint->info().updates_applied, 0);
  }
}

TEST_F(TrainTest, UpdatesWithBackwardChangeNoBit) {
  TrainConfig config = Config(3000);
  config.optimizer.max_grad_norm = 0;
  TrainConfig with_backward = Config(3000);
  with_backward.optimizer = config.optimizer;
  with_backward.optimizer.update_with_backward = true;
  const auto steps = MustTrain(config).steps;
  const auto same = MustTrain(with_backward).steps;
  ASSERT_EQ(steps.size(), same.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].loss, same[i].loss);
    EXPECT_EQ(steps[i].grad_norm, same[i].grad_norm);
  }
  const auto plan = PlanTraining(with_backward);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->policy, HasSubstr("updates with backward"));
  for (const auto& entry : plan->classes) {
    if (entry.name == "host gradients") {
      EXPECT_EQ(entry.bytes, 0);
    }
  }
}

TEST_F(TrainTest, EvaluationIsTokenWeightedAndIndependentOfTheBatch) {
  TrainConfig config = Config(6000);
  config.evaluation = {.validation_fraction = 0.2};
  config.optimizer.learning_rate = 0;
  config.schedule.max_steps = 1;
  std::vector<double> losses;
  std::vector<int64_t> counts;
  for (int64_t micro_batch : {16, 32, 64}) {
    for (Packing packing : {Packing::kPacked, Packing::kPadded}) {
      config.batch.micro_batch_tokens = micro_batch;
      config.data.packing = packing;
      config.checkpoint_directory = dir_.Path("c" + std::to_string(++files_));
      const auto evaluations = MustTrain(config).evaluations;
      ASSERT_EQ(evaluations.size(), 1u);
      losses.push_back(evaluations[0].loss);
      counts.push_back(evaluations[0].labelled_tokens);
    }
  }
  for (size_t i = 1; i < losses.size(); ++i) {
    EXPECT_EQ(counts[i], counts[0]);
    EXPECT_NEAR(losses[i] / losses[0], 1, 1e-6);
  }
}

TEST_F(TrainTest, EvaluatingBetweenStepsDoesNotMoveTheTraining) {
  TrainConfig config = Config(6000);
  config.evaluation = {.validation_fraction = 0.2};
  config.schedule.max_steps = 8;
  const auto without = MustTrain(config).steps;
  config.evaluation.every_steps = 1;
  config.checkpoint_directory += "-2";
  const RecordingObserver with = MustTrain(config);
  EXPECT_EQ(with.evaluations.size(), 8u);
  for (size_t i = 0; i < without.size(); ++i) EXPECT_EQ(without[i].loss, with.steps[i].loss);
}

TEST_F(TrainTest, ExportedModelHasTheLossThatTheJobReported) {
  TrainConfig config = Config(6000);
  config.evaluation = {.validation_fraction = 0.2};
  config.schedule.max_steps = 10;
  config.output_directory = dir_.Path("out");
  const double reported = MustTrain(config).evaluations.back().loss;
  TrainConfig again = config;
  again.model = ModelFromDirectory{config.output_directory};
  again.output_directory = "";
  again.checkpoint_directory += "-2";
  again.optimizer.learning_rate = 0;
  again.schedule.max_steps = 1;
  EXPECT_EQ(MustTrain(again).evaluations.back().loss, reported);
}

TEST_F(TrainTest, FailedExportLeavesNoDirectoryAndKeepsTheCheckpoint) {
  TrainConfig config = Config();
  config.output_directory = dir_.Path("missing/parent/out");
  RecordingObserver observer;
  EXPECT_FALSE(Train(config, observer).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_.Path("missing")));
  EXPECT_THAT(observer.saved, ElementsAre(4));
}

}  // namespace
}  // namespace penstock
