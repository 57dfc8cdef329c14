// Which checkpoints a run makes and keeps, and what becomes of it when one cannot be made.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/engine.h"
#include "engine/exec/executor.h"
#include "engine/train/checkpoint.h"
#include "engine/train/checkpoint_directory.h"
#include "engine/train/train_with_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/resume_fixture.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using testing::DeferringAndPlacing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReadState;
using testing::ReadTree;
using testing::RecordingObserver;
using testing::UntiedModel;
using testing::UsePolicy;
using testing::WriteFileOrDie;

std::set<int64_t> StepsOf(const TrainConfig& config) {
  return *ListCheckpointSteps(config.checkpoint_directory);
}

TEST_F(ResumeTest, BestEveryNthAndHeldCheckpointsStay) {
  TrainConfig config = Config("run");
  config.schedule = {.max_steps = 12};
  config.optimizer.learning_rate = 0;  // all evaluations give the same: the first is the best
  config.evaluation.every_steps = 1;
  config.checkpoints = {.every_steps = 1, .keep_last = 2, .keep_every_steps = 5};
  const RecordingObserver plain = MustTrain(config);
  EXPECT_THAT(StepsOf(config), ElementsAre(5, 10, 11, 12));
  TrainConfig keeping = config;
  keeping.checkpoint_directory = dir_.Path("keeping/checkpoints");
  keeping.checkpoints.keep_best = true;
  MustTrain(keeping, 3);
  ASSERT_TRUE(HoldCheckpoint(keeping.checkpoint_directory, 3, kPinHolder).ok());
  MustTrain(keeping, 3);  // what is best, and what is held, is known to later attempts
  MustTrain(keeping);
  EXPECT_THAT(StepsOf(keeping), ElementsAre(1, 3, 5, 10, 11, 12));
  const auto opened = OpenCheckpoint(Checkpoint(keeping, 12), Verification::kSizes);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->info().best->step, 1);
  EXPECT_EQ((*opened)->info().best->loss, plain.evaluations.front().loss);
  EXPECT_EQ((*opened)->info().evaluation_loss, plain.evaluations.back().loss);
}

TEST_F(ResumeTest, ABetterEvaluationIsSavedThoughNoneIsDue) {
  TrainConfig config = Config("run");
  config.checkpoints.keep_best = true;
  const RecordingObserver run = MustTrain(config);
  double lowest = std::numeric_limits<double>::infinity();
  std::set<int64_t> wanted = {run.total_steps};
  for (const EvaluationRecord& record : run.evaluations) {
    if (record.loss < lowest) wanted.insert(record.step);
    lowest = std::min(lowest, record.loss);
  }
  EXPECT_GE(wanted.size(), 3u);
  EXPECT_EQ(std::set<int64_t>(run.saved.begin(), run.saved.end()), wanted);
}

TEST_F(ResumeTest, ARunThatGetsNoBetterEndsEarlyHoweverOftenItIsInterrupted) {
  TrainConfig config = Config("run");
  config.schedule = {.max_steps = 12};
  config.optimizer.learning_rate = 0;  // all evaluations give the same: the first is the best
  config.evaluation.every_steps = 2;
  config.evaluation.early_stopping_patience = 3;
  config.output_directory = dir_.Path("exported");
  MustTrain(config, 3);
  MustTrain(config, 4);
  RecordingObserver observer;
  const absl::StatusOr<TrainSummary> end = Train(config, observer);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->end, TrainEnd::kFinished);
  EXPECT_EQ(end->steps, 8) << "evaluated after 2, 4, 6, 8";
  EXPECT_THAT(end->early_stop, HasSubstr("none of the last 3 evaluations"));
  EXPECT_THAT(end->early_stop, HasSubstr("after step 2"));
  EXPECT_TRUE(fs::exists(config.output_directory));
  EXPECT_THAT(StepsOf(config), Contains(8));
  // As after a death before the outcome was told.
  RecordingObserver after;
  const absl::StatusOr<TrainSummary> again = Train(config, after);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->steps, 8);
  EXPECT_EQ(again->early_stop, end->early_stop);
  EXPECT_THAT(after.steps, IsEmpty());
}

TEST_F(ResumeTest, ALowerLossBeginsThePatienceAnew) {
  TrainConfig config = Config("run");
  config.evaluation.every_steps = 1;
  config.evaluation.early_stopping_patience = 1;
  const RecordingObserver run = MustTrain(config);
  ASSERT_GE(run.evaluations.size(), 3u);
  for (size_t i = 1; i + 1 < run.evaluations.size(); ++i) {
    EXPECT_LT(run.evaluations[i].loss, run.evaluations[i - 1].loss);
  }
}

TEST_F(ResumeTest, ARequestIsSavedAfterTheStepAndTrainingGoesOn) {
  const TrainConfig config = Config("run");
  RecordingObserver observer;
  observer.save_requested_at = 3;
  ASSERT_TRUE(Train(config, observer).ok());
  EXPECT_THAT(observer.saved, ElementsAre(3, observer.total_steps));
}

TEST_F(ResumeTest, ACheckpointThatSomebodyDeletesIsNoObstacle) {
  TrainConfig config = Config("run");
  config.checkpoints = {.every_steps = 1, .keep_last = 3};
  MustTrain(config, 3);
  fs::remove_all(Checkpoint(config, 3));
  EXPECT_EQ(MustTrain(config, 1).resumed.at(0).step, 2);
}

enum class Lost : uint8_t { kInStep, kInEvaluation };

// An executor whose device is lost when it is to begin the step, or the micro-batch that is
// evaluated, that is numbered so, from 1.
class LosingExecutor : public Executor {
 public:
  LosingExecutor(std::unique_ptr<Executor> inner, Lost lost, int64_t at)
      : inner_(std::move(inner)), lost_(lost), at_(at) {}

  absl::Status Prepare(const StepProgram& program) override { return inner_->Prepare(program); }
  absl::Status Run(const StepProgram& program, const StepInput& input,
                   StepResult& result) override {
    const Lost kind = program.updates == Updates::kNone ? Lost::kInEvaluation : Lost::kInStep;
    begun_ += !input.micro_batches.empty() && kind == lost_;
    if (begun_ < at_) return inner_->Run(program, input, result);
    return Error(absl::StatusCode::kUnavailable, reason::kDeviceFailed, "off the bus");
  }
  std::span<const OpTime> timeline() const override { return inner_->timeline(); }

 private:
  const std::unique_ptr<Executor> inner_;
  const Lost lost_;
  const int64_t at_;
  int64_t begun_ = 0;
};

TEST_F(ResumeTest, WhenTheDeviceIsLostWhatTheHostHoldsIsSaved) {
  const auto config_of = [&](const std::string& run) {
    TrainConfig config = Config(run);
    config.model = ModelFromConfig{UntiedModel().dump()};
    config.evaluation.every_steps = 4;
    return config;
  };
  const TrainConfig whole = config_of("whole");
  const int64_t total = MustTrain(whole).total_steps;
  std::vector<Policy> policies = DeferringAndPlacing();
  policies.push_back({});
  int64_t number = 0, saved = 0;
  for (const Policy& policy : policies) {
    const bool state_on_device =
        std::any_of(policy.placements.begin(), policy.placements.end(),
                    [](const BlockPlacement& placement) { return placement.HasMaster(); });
    const bool deferred = LeavesUpdatePending(policy.update_time);
    for (int64_t at = 1; at <= total; ++at) {
      SCOPED_TRACE(absl::StrCat("policy ", number, " lost in step ", at));
      const TrainConfig config = config_of(absl::StrCat("run", number, "-", at));
      const auto train = [&](int64_t lost_at, RecordingObserver& observer) {
        return TrainWithPlan(
                   config,
                   [&](const ModelInput& model, TrainingPlan& plan) {
                     UsePolicy(policy, model, plan);
                     plan.wrap_executor = [=](std::unique_ptr<Executor> inner) {
                       return std::make_unique<LosingExecutor>(std::move(inner), Lost::kInStep,
                                                               lost_at);
                     };
                   },
                   observer)
            .status();
      };
      RecordingObserver lost, rest;
      EXPECT_EQ(ReasonOf(train(at, lost)), reason::kDeviceFailed);
      // The update of the step before waits, unless an evaluation came after it.
      const int64_t in_store = at - 1 - (deferred && (at - 1) % 4 != 0 ? 1 : 0);
      if (state_on_device || in_store <= 0) {
        EXPECT_THAT(lost.saved, IsEmpty());
      } else {
        EXPECT_THAT(lost.saved, ElementsAre(in_store));
        ++saved;
      }
      EXPECT_TRUE(train(total + 1, rest).ok());
      EXPECT_TRUE(ReadState(Checkpoint(config, total)) == ReadState(Checkpoint(whole, total)));
    }
    ++number;
  }
  EXPECT_GT(saved, total);
}

TEST_F(ResumeTest, AnEvaluationThatTheDeviceWasLostInIsMadeByTheNextAttempt) {
  const RecordingObserver whole = MustTrain(Config("whole"));
  const TrainConfig config = Config("run");
  RecordingObserver lost;
  const absl::Status status =
      TrainWithPlan(
          config,
          [](const ModelInput& /*model*/, TrainingPlan& plan) {
            plan.wrap_executor = [](std::unique_ptr<Executor> inner) {
              return std::make_unique<LosingExecutor>(std::move(inner), Lost::kInEvaluation, 1);
            };
          },
          lost)
          .status();
  EXPECT_EQ(ReasonOf(status), reason::kDeviceFailed) << status;
  EXPECT_THAT(lost.saved, ElementsAre(2));
  EXPECT_THAT(lost.evaluations, IsEmpty());
  const RecordingObserver rest = MustTrain(config);
  ASSERT_EQ(rest.evaluations.size(), whole.evaluations.size());
  for (size_t i = 0; i < rest.evaluations.size(); ++i) {
    EXPECT_EQ(rest.evaluations[i].step, whole.evaluations[i].step);
    EXPECT_EQ(rest.evaluations[i].loss, whole.evaluations[i].loss);
  }
}

// Puts something in the way of the checkpoint of step 4 when that has been evaluated.
class FourInTheWay : public RecordingObserver {
 public:
  explicit FourInTheWay(std::string directory) : directory_(std::move(directory)) {}
  void OnEvaluation(const EvaluationRecord& record) override {
    RecordingObserver::OnEvaluation(record);
    if (record.step == 4) WriteFileOrDie(directory_ + "/4", "in the way");
  }

 private:
  const std::string directory_;
};

TEST_F(ResumeTest, TheBestCheckpointStaysUntilABetterOneIsThere) {
  TrainConfig config = Config("run");
  config.checkpoints = {.keep_last = 1, .keep_best = true};
  FourInTheWay observer(config.checkpoint_directory);
  observer.stop_after = 5;
  ASSERT_TRUE(Train(config, observer).ok());
  ASSERT_EQ(observer.evaluations.size(), 2u);
  ASSERT_LT(observer.evaluations[1].loss, observer.evaluations[0].loss);
  ASSERT_EQ(observer.failed.size(), 1u);
  EXPECT_EQ(observer.failed[0].first, 4);
  fs::remove(config.checkpoint_directory + "/4");
  EXPECT_THAT(StepsOf(config), ElementsAre(2, 5));
  // The next attempt finds that the best of all is not there.
  config.evaluation.every_steps = 100;
  MustTrain(config, 1);
  EXPECT_THAT(StepsOf(config), Contains(2));
}

TEST_F(ResumeTest, CheckpointsThatCannotBeWrittenFailTheRunOnlyIfItsWorkWouldBeLost) {
  // A file in place of the directory: no checkpoint can be written.
  TrainConfig config = Config("run");
  config.checkpoints.every_steps = 2;
  fs::create_directories(fs::path(config.checkpoint_directory).parent_path());
  WriteFileOrDie(config.checkpoint_directory, "in the way");
  RecordingObserver lost;
  const absl::Status status = Train(config, lost).status();
  EXPECT_EQ(ReasonOf(status), reason::kIoError) << status;
  EXPECT_EQ(static_cast<int64_t>(lost.steps.size()), lost.total_steps) << "it trained to its end";
  EXPECT_GE(lost.failed.size(), 3u);
  EXPECT_EQ(lost.failed[0].first, 2);

  RecordingObserver stopped;
  stopped.stop_after = 3;
  EXPECT_EQ(ReasonOf(Train(config, stopped).status()), reason::kIoError);

  config.output_directory = dir_.Path("out");
  RecordingObserver exported;
  const auto summary = Train(config, exported);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->output_directory, config.output_directory);
  EXPECT_TRUE(fs::exists(dir_.Path("out/model.safetensors")));
}

TEST_F(ResumeTest, AnExportThatOutlivedItsAttemptIsTaken) {
  TrainConfig config = Config("run");
  config.output_directory = dir_.Path("out");
  MustTrain(config);
  const auto before = ReadTree(config.output_directory);
  RecordingObserver again;
  const auto summary = Train(config, again);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->output_directory, config.output_directory);
  EXPECT_TRUE(ReadTree(config.output_directory) == before);
  // What somebody else put there is not taken for it.
  TrainConfig other = Config("other");
  other.output_directory = dir_.Path("theirs");
  fs::create_directory(other.output_directory);
  RecordingObserver refused;
  EXPECT_EQ(ReasonOf(Train(other, refused).status()), reason::kOutputExists);
  EXPECT_EQ(ReasonOf(Train(other, refused).status()), reason::kOutputExists);
}

// The second step takes longer than the time between checkpoints.
class SlowSecondStep : public RecordingObserver {
 public:
  void OnStep(const StepRecord& record) override {
    RecordingObserver::OnStep(record);
    if (record.step == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1050));
  }
};

TEST_F(ResumeTest, CheckpointsMayGoByTime) {
  TrainConfig config = Config("run");
  config.checkpoints.every_seconds = 1;
  SlowSecondStep observer;
  ASSERT_TRUE(Train(config, observer).ok());
  EXPECT_THAT(observer.saved, Contains(2));
}

}  // namespace
}  // namespace penstock
