// Runs that start from another run's checkpoint.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "engine/base/status.h"
#include "engine/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/resume_fixture.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::ReadState;
using testing::RecordingObserver;
using testing::UntiedModel;

// The files of a checkpoint but its manifest, which also tells of evaluations.
std::map<std::string, std::string> TensorsOf(const std::string& checkpoint) {
  auto files = ReadState(checkpoint);
  files.erase("manifest.json");
  return files;
}

TEST_F(ResumeTest, ARunThatStartsFromAnothersCheckpointGoesOnAsThatOneWould) {
  const TrainConfig whole = Config("whole");
  const RecordingObserver uninterrupted = MustTrain(whole);
  const TrainConfig first = Config("first");
  MustTrain(first, 3);
  TrainConfig fork = Config("fork");
  fork.start_checkpoint = Checkpoint(first, 3);
  const RecordingObserver begun = MustTrain(fork, 2);
  ASSERT_EQ(begun.resumed.size(), 1u);
  EXPECT_EQ(begun.resumed[0].directory, fork.start_checkpoint);
  EXPECT_EQ(begun.steps.front().step, 4);
  EXPECT_THAT(begun.log, Not(HasSubstr("unlike")));
  fs::remove_all(first.checkpoint_directory);  // a later attempt has its own
  const RecordingObserver rest = MustTrain(fork);
  EXPECT_EQ(rest.resumed.at(0).step, 5);
  ExpectSameSteps(uninterrupted.steps, rest.steps, 5);
  const int64_t total = uninterrupted.total_steps;
  EXPECT_TRUE(TensorsOf(Checkpoint(fork, total)) == TensorsOf(Checkpoint(whole, total)));
}

TEST_F(ResumeTest, WhatAForkChangesIsSaidAndHolds) {
  const TrainConfig first = Config("first");
  MustTrain(first, 3);
  TrainConfig fork = Config("fork");
  fork.start_checkpoint = Checkpoint(first, 3);
  fork.optimizer.learning_rate = 0;
  fork.schedule.epochs = 3;
  const RecordingObserver run = MustTrain(fork);
  EXPECT_THAT(run.log, HasSubstr("unlike the other run: optimizer.learning_rate: "));
  EXPECT_THAT(run.log, HasSubstr("unlike the other run: schedule.epochs: 2, now 3"));
  const auto before = TensorsOf(Checkpoint(first, 3)),
             after = TensorsOf(Checkpoint(fork, run.total_steps));
  EXPECT_EQ(before.at("weights-00001.safetensors"), after.at("weights-00001.safetensors"));

  fork.checkpoint_directory = dir_.Path("short/checkpoints");
  fork.schedule = {.max_steps = 3};
  RecordingObserver observer;
  const absl::Status nothing_left = Train(fork, observer).status();
  EXPECT_EQ(ReasonOf(nothing_left), reason::kSpecInvalid) << nothing_left;
  fork.checkpoint_directory = dir_.Path("other/checkpoints");
  fork.model = ModelFromConfig{UntiedModel().dump()};
  const absl::Status other_model = Train(fork, observer).status();
  EXPECT_EQ(ReasonOf(other_model), reason::kCheckpointMismatch) << other_model;
  EXPECT_THAT(observer.steps, IsEmpty());
}

}  // namespace
}  // namespace penstock
