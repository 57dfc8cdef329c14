// Runs that stop and go on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "engine/train/checkpoint.h"
#include "engine/train/model_input.h"
#include "engine/train/train_with_plan.h"
#include "gtest/gtest.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {

class ResumeTest : public ::testing::Test {
 protected:
  // Two epochs with a smaller last step each, two micro-batches a step, evaluation after every
  // second one.
  TrainConfig Config(const std::string& run) {
    if (!std::filesystem::exists(dir_.Path("data.txt")))
      testing::WriteFileOrDie(dir_.Path("data.txt"), testing::SomeText(300));
    TrainConfig config = testing::TinyTrainConfig(dir_.Path(run), dir_.Path("data.txt"));
    config.evaluation = {.validation_fraction = 0.3, .every_steps = 2};
    config.schedule = {.warmup_steps = 2, .max_steps = 0, .epochs = 2};
    config.optimizer.weight_decay = 0.1;
    return config;
  }

  testing::RecordingObserver MustTrain(const TrainConfig& config, int64_t stop_after = INT64_MAX) {
    testing::RecordingObserver observer;
    observer.stop_after = stop_after;
    const auto summary = Train(config, observer);
    EXPECT_TRUE(summary.ok()) << summary.status();
    return observer;
  }

  // By a policy of its own instead of the planner's.
  testing::RecordingObserver MustTrainBy(const Policy& policy, const TrainConfig& config,
                                         int64_t stop_after = INT64_MAX) {
    testing::RecordingObserver observer;
    observer.stop_after = stop_after;
    const auto summary = TrainWithPlan(
        config,
        [&](const ModelInput& model, TrainingPlan& plan) {
          testing::UsePolicy(policy, model, plan);
        },
        observer);
    EXPECT_TRUE(summary.ok()) << summary.status();
    return observer;
  }

  static RunFacts FactsOf(const std::string& checkpoint) {
    return (*OpenCheckpoint(checkpoint, Verification::kSizes))->info().facts;
  }

  static std::string Checkpoint(const TrainConfig& config, int64_t step) {
    return absl::StrCat(config.checkpoint_directory, "/", step);
  }

  void ExpectEveryStepOfFortyAndTheRestMakeTheWholeRun(ComputeBackend backend);

  testing::TempDir dir_;
};

inline void ExpectSameSteps(const std::vector<StepRecord>& whole,
                            const std::vector<StepRecord>& rest, int64_t from) {
  ASSERT_EQ(rest.size(), whole.size() - from);
  for (size_t i = 0; i < rest.size(); ++i) {
    const StepRecord& wanted = whole[from + i];
    EXPECT_EQ(rest[i].step, wanted.step);
    EXPECT_EQ(rest[i].epoch, wanted.epoch);
    EXPECT_EQ(rest[i].loss, wanted.loss) << "step " << wanted.step;
    EXPECT_EQ(rest[i].grad_norm, wanted.grad_norm);
    EXPECT_EQ(rest[i].learning_rate, wanted.learning_rate);
    EXPECT_EQ(rest[i].labelled_tokens, wanted.labelled_tokens);
  }
}

}  // namespace penstock
