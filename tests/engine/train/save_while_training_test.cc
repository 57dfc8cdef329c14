// Checkpoints that are written while a run trains on, on a disk that is slow: each is, byte for
// byte, that of a run which stops there, and the run's own bits are those of a run that saves
// nothing.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/engine.h"
#include "engine/train/checkpoint.h"
#include "engine/train/checkpoint_directory.h"
#include "engine/train/train_with_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/fault_files.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::DeferringAndPlacing;
using ::testing::ElementsAre;
using testing::FileCall;
using testing::FileFault;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReadState;
using testing::RecordingObserver;
using testing::SomeText;
using testing::StartFileFaults;
using testing::StopFileFaults;
using testing::TempDir;
using testing::TinyTrainConfig;
using testing::UntiedModel;
using testing::UsePolicy;
using testing::WriteFileOrDie;

constexpr int64_t kSteps = 5;
constexpr FileFault kSlowDisk = {.kind = FileFault::Kind::kSlow, .milliseconds = 2};

class SavingObserver : public RecordingObserver {
 public:
  void OnCheckpointSaved(const CheckpointRecord& record) override {
    RecordingObserver::OnCheckpointSaved(record);
    records.push_back(record);
  }
  std::vector<CheckpointRecord> records;
};

class SaveWhileTrainingTest : public ::testing::Test {
 protected:
  SaveWhileTrainingTest() { WriteFileOrDie(dir_.Path("data.txt"), SomeText(500)); }

  TrainConfig Config(const std::string& run, MomentType type = MomentType::kFloat32) {
    fs::create_directories(dir_.Path(run));
    TrainConfig config = TinyTrainConfig(dir_.Path(run), dir_.Path("data.txt"));
    config.model = ModelFromConfig{UntiedModel().dump()};
    config.evaluation = {.validation_fraction = 0.3, .every_steps = 2};
    config.schedule = {.max_steps = kSteps};
    config.compute_threads = 2;
    config.moment_type = type;
    return config;
  }

  static std::map<std::string, std::string> CheckpointOf(const TrainConfig& config, int64_t step) {
    return ReadState(CheckpointPath(config.checkpoint_directory, step));
  }

  // What a run leaves that stops after each step and waits until it is saved.
  std::vector<std::map<std::string, std::string>> WhatRunsThatStopLeave(
      MomentType type = MomentType::kFloat32) {
    std::vector<std::map<std::string, std::string>> checkpoints(1);
    for (int64_t step = 1; step <= kSteps; ++step) {
      const TrainConfig config = Config(absl::StrCat(MomentTypeName(type), "-until", step), type);
      RecordingObserver observer;
      observer.stop_after = step;
      EXPECT_TRUE(Train(config, observer).ok());
      checkpoints.push_back(CheckpointOf(config, step));
    }
    return checkpoints;
  }

  TempDir dir_;
};

std::vector<double> LossesOf(const RecordingObserver& run) {
  std::vector<double> losses;
  for (const StepRecord& record : run.steps) losses.push_back(record.loss);
  for (const EvaluationRecord& record : run.evaluations) losses.push_back(record.loss);
  return losses;
}

TEST_F(SaveWhileTrainingTest, EachCheckpointIsThatOfARunWhichStopsThere) {
  const auto wanted = WhatRunsThatStopLeave();
  RecordingObserver saving_nothing;
  ASSERT_TRUE(Train(Config("plain"), saving_nothing).ok());
  std::vector<Policy> policies = DeferringAndPlacing();
  policies.push_back({});
  for (size_t i = 0; i < policies.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("policy ", i));
    TrainConfig config = Config(absl::StrCat("run", i));
    config.checkpoints = {.every_steps = 1, .keep_last = kSteps};
    StartFileFaults(config.checkpoint_directory, kSlowDisk);
    SavingObserver observer;
    const auto summary = TrainWithPlan(
        config,
        [&](const ModelInput& model, TrainingPlan& plan) { UsePolicy(policies[i], model, plan); },
        observer);
    StopFileFaults();
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_THAT(observer.saved, ElementsAre(1, 2, 3, 4, 5));
    EXPECT_EQ(LossesOf(observer), LossesOf(saving_nothing));
    for (int64_t step = 1; step <= kSteps; ++step) {
      auto files = CheckpointOf(config, step), expected = wanted[step];
      // A run that stops after a step does not evaluate, which its manifest says.
      if (step % config.evaluation.every_steps == 0) {
        files.erase("manifest.json");
        expected.erase("manifest.json");
      }
      EXPECT_TRUE(files == expected) << "checkpoint of step " << step;
    }
    for (const CheckpointRecord& record : observer.records) {
      EXPECT_GT(record.write_seconds, 0);
      EXPECT_GE(record.waited_seconds, 0);
    }
    EXPECT_GT(observer.records.back().waited_seconds, 0) << "the last one is waited for";
  }
}

// A block's scales are copied, too, before it may change.
TEST_F(SaveWhileTrainingTest, SmallMomentsAreThoseOfTheStepAsWell) {
  for (const MomentType type : {MomentType::kBfloat16, MomentType::kInt8Blocks}) {
    SCOPED_TRACE(MomentTypeName(type));
    const auto wanted = WhatRunsThatStopLeave(type);
    TrainConfig config = Config(absl::StrCat(MomentTypeName(type), "-run"), type);
    config.checkpoints = {.every_steps = 1, .keep_last = kSteps};
    StartFileFaults(config.checkpoint_directory, kSlowDisk);
    RecordingObserver observer;
    const auto summary = TrainWithPlan(
        config,
        [&](const ModelInput& model, TrainingPlan& plan) {
          UsePolicy({.update_time = UpdateTime::kNextStep}, model, plan);
        },
        observer);
    StopFileFaults();
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_THAT(observer.saved, ElementsAre(1, 2, 3, 4, 5));
    for (int64_t step = 1; step <= kSteps; ++step) {
      auto files = CheckpointOf(config, step), expected = wanted[step];
      files.erase("manifest.json");
      expected.erase("manifest.json");
      EXPECT_EQ(files.contains("m_scales-00001.safetensors"), type == MomentType::kInt8Blocks);
      EXPECT_TRUE(files == expected) << "checkpoint of step " << step;
    }
  }
}

TEST_F(SaveWhileTrainingTest, AStopWaitsForWhatIsBeingWrittenAndSavesTheLastStepToo) {
  TrainConfig config = Config("run");
  config.checkpoints = {.every_steps = 2, .keep_last = kSteps};
  RecordingObserver observer;
  observer.stop_after = 3;
  StartFileFaults(config.checkpoint_directory, kSlowDisk);
  ASSERT_TRUE(Train(config, observer).ok());
  StopFileFaults();
  EXPECT_THAT(observer.saved, ElementsAre(2, 3));
  EXPECT_THAT(observer.failed, IsEmpty());
}

// The calls of a run that saves after each step, in its checkpoint directory.
std::vector<FileCall> CallsOf(const TrainConfig& config) {
  RecordingObserver observer;
  StartFileFaults(config.checkpoint_directory, {});
  EXPECT_TRUE(Train(config, observer).ok());
  return StopFileFaults();
}

TEST_F(SaveWhileTrainingTest, AFileThatCannotBeFlushedFailsTheSaveAndNotTheRun) {
  TrainConfig config = Config("recorded");
  config.compute_threads = 1;  // one writer: the calls have an order
  config.checkpoints = {.every_steps = 1, .keep_last = kSteps};
  const std::vector<FileCall> calls = CallsOf(config);
  const auto wanted = CheckpointOf(config, kSteps);
  int64_t tried = 0;
  for (size_t at = 0; at < calls.size() && tried < 8; ++at) {
    if (calls[at].kind != FileCall::Kind::kSync) continue;
    ++tried;
    SCOPED_TRACE(absl::StrCat("call ", at, " on ", calls[at].path));
    TrainConfig faulty = Config(absl::StrCat("run", at));
    faulty.compute_threads = 1;
    faulty.checkpoints = config.checkpoints;
    RecordingObserver observer;
    StartFileFaults(faulty.checkpoint_directory,
                    {.kind = FileFault::Kind::kFail, .at = static_cast<int64_t>(at), .error = EIO});
    const absl::Status status = Train(faulty, observer).status();
    StopFileFaults();
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(observer.failed.size(), 1u);
    EXPECT_EQ(ReasonOf(observer.failed[0].second), reason::kIoError);
    EXPECT_EQ(observer.saved.size(), static_cast<size_t>(kSteps - 1)) << "the other steps";
    EXPECT_TRUE(CheckpointOf(faulty, kSteps) == wanted);
    for (const auto& entry : fs::directory_iterator(faulty.checkpoint_directory)) {
      EXPECT_FALSE(absl::StrContains(entry.path().string(), ".staging-")) << entry.path();
    }
  }
  EXPECT_EQ(tried, 8);
}

// Runs so many steps and then fails, as for a bug of ours.
class FailingExecutor : public Executor {
 public:
  FailingExecutor(std::unique_ptr<Executor> inner, int64_t good_steps)
      : inner_(std::move(inner)), steps_left_(good_steps) {}
  absl::Status Prepare(const StepProgram& program) override { return inner_->Prepare(program); }
  absl::Status Run(const StepProgram& program, const StepInput& input,
                   StepResult& result) override {
    if (program.updates != Updates::kNone && --steps_left_ < 0) {
      return Error(absl::StatusCode::kInternal, reason::kInternal, "a bug");
    }
    return inner_->Run(program, input, result);
  }
  std::span<const OpTime> timeline() const override { return inner_->timeline(); }

 private:
  const std::unique_ptr<Executor> inner_;
  int64_t steps_left_;
};

TEST_F(SaveWhileTrainingTest, WhatIsBeingWrittenWhenTheRunFailsIsWhole) {
  TrainConfig config = Config("run");
  config.checkpoints = {.every_steps = 2};
  RecordingObserver observer;
  StartFileFaults(config.checkpoint_directory, kSlowDisk);
  const auto summary = TrainWithPlan(
      config,
      [](const ModelInput&, TrainingPlan& plan) {
        plan.wrap_executor = [](std::unique_ptr<Executor> inner) {
          return std::make_unique<FailingExecutor>(std::move(inner), 2);
        };
      },
      observer);
  StopFileFaults();
  EXPECT_THAT(std::string(summary.status().message()), HasSubstr("a bug"));
  EXPECT_THAT(observer.saved, ElementsAre(2));
  const auto opened =
      OpenCheckpoint(CheckpointPath(config.checkpoint_directory, 2), Verification::kHashes);
  EXPECT_TRUE(opened.ok()) << opened.status();
}

// A medium that fails under the newest checkpoint: the one before it is used, and the other kept.
TEST_F(SaveWhileTrainingTest, ACheckpointThatCannotBeReadIsPassedOver) {
  const TrainConfig whole = Config("whole");
  RecordingObserver uninterrupted;
  ASSERT_TRUE(Train(whole, uninterrupted).ok());
  int number = 0;
  for (const char* file : {"manifest.json", "source/config.json", "weights-00001.safetensors",
                           "m-00001.safetensors", "v-00001.safetensors"}) {
    SCOPED_TRACE(file);
    TrainConfig config = Config(absl::StrCat("run", number++));
    config.checkpoints = {.every_steps = 2, .keep_last = kSteps};
    RecordingObserver first, rest;
    first.stop_after = 4;
    ASSERT_TRUE(Train(config, first).ok());
    StartFileFaults(
        config.checkpoint_directory,
        {.kind = FileFault::Kind::kFailReads, .error = EIO, .path = absl::StrCat("4/", file)});
    const absl::Status status = Train(config, rest).status();
    StopFileFaults();
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(rest.resumed.size(), 1u);
    EXPECT_EQ(rest.resumed[0].step, 2);
    EXPECT_THAT(rest.log, HasSubstr("checkpoint of step 4 cannot be used"));
    EXPECT_TRUE(fs::exists(config.checkpoint_directory + "/.unusable-4"));
    EXPECT_TRUE(CheckpointOf(config, kSteps) == CheckpointOf(whole, kSteps));
  }
}

}  // namespace
}  // namespace penstock
