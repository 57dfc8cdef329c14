// Checkpoints that a run does not go on from: damaged, another run's, out of reach, unfinished.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/engine.h"
#include "engine/memory/host_store.h"
#include "engine/train/job_checkpoints.h"
#include "engine/train/model_input.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/resume_fixture.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::ByteModelConfig;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReadFileOrDie;
using testing::ReadState;
using testing::ReadTree;
using testing::RecordingObserver;
using testing::SomeText;
using testing::WithChecksum;
using testing::WriteFileOrDie;

TEST_F(ResumeTest, AnotherStatePrecisionIsRefusedWithBothNamed) {
  TrainConfig config = Config("run");
  MustTrain(config, 3);
  const auto before = ReadTree(config.checkpoint_directory);
  TrainConfig fork = Config("fork");
  fork.start_checkpoint = Checkpoint(config, 3);
  fork.moment_type = config.moment_type = MomentType::kBfloat16;
  for (const TrainConfig& changed : {config, fork}) {
    RecordingObserver observer;
    const absl::Status status = Train(changed, observer).status();
    EXPECT_EQ(ReasonOf(status), reason::kCheckpointMismatch) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("precision.optimizer_state"),
                                                     HasSubstr("float32"), HasSubstr("bfloat16")));
    EXPECT_THAT(observer.steps, IsEmpty());
  }
  EXPECT_TRUE(ReadTree(config.checkpoint_directory) == before);
  config.moment_type = MomentType::kFloat32;
  EXPECT_EQ(MustTrain(config).resumed.size(), 1u);
}

TEST_F(ResumeTest, DamagedCheckpointIsSetAsideAndTheOneBeforeUsed) {
  const TrainConfig whole = Config("whole");
  const int64_t total = MustTrain(whole).total_steps;
  for (const char* name : {"weights-00001.safetensors", "v-00001.safetensors", "manifest.json"}) {
    TrainConfig config = Config(absl::StrCat("damaged ", name));
    config.checkpoints.every_steps = 2;
    config.checkpoints.keep_last = 5;
    MustTrain(config, 4);
    const std::string file = absl::StrCat(Checkpoint(config, 4), "/", name);
    std::string bytes = ReadFileOrDie(file);
    bytes[bytes.size() - 3] ^= 4;
    WriteFileOrDie(file, bytes);
    const RecordingObserver rest = MustTrain(config);
    ASSERT_EQ(rest.resumed.size(), 1u) << name;
    EXPECT_EQ(rest.resumed[0].step, 2);
    EXPECT_THAT(rest.removed, ElementsAre(4));
    EXPECT_THAT(rest.log, HasSubstr(name));
    EXPECT_TRUE(fs::exists(config.checkpoint_directory + "/.unusable-4/manifest.json"));
    EXPECT_TRUE(ReadState(Checkpoint(config, total)) == ReadState(Checkpoint(whole, total)));
  }
}

TEST_F(ResumeTest, WithoutAnIntactCheckpointTheRunStartsAgain) {
  const TrainConfig whole = Config("whole");
  const int64_t total = MustTrain(whole).total_steps;
  const TrainConfig config = Config("run");
  MustTrain(config, 3);
  fs::resize_file(Checkpoint(config, 3) + "/m-00001.safetensors", 100);
  const RecordingObserver again = MustTrain(config);
  EXPECT_THAT(again.resumed, IsEmpty());
  EXPECT_EQ(again.steps.front().step, 1);
  EXPECT_TRUE(ReadState(Checkpoint(config, total)) == ReadState(Checkpoint(whole, total)));
}

// BC-32: other data is never taken for the same.
TEST_F(ResumeTest, CheckpointOfAnotherRunIsRefusedAndKept) {
  struct Change {
    const char* name;
    std::function<void(TrainConfig&)> apply;
  };
  const Change changes[] = {
      {"seed", [](TrainConfig& c) { c.seed = 9; }},
      {"optimizer.learning_rate", [](TrainConfig& c) { c.optimizer.learning_rate = 0.02; }},
      {"schedule.epochs", [](TrainConfig& c) { c.schedule.epochs = 3; }},
      {"config.json",
       [](TrainConfig& c) {
         nlohmann::json model = ByteModelConfig();
         model["rope_theta"] = 20000.0;
         c.model = ModelFromConfig{model.dump()};
       }},
      {"training data", [](TrainConfig& c) { c.evaluation.validation_fraction = 0.5; }},
      {"training data", [this](TrainConfig& c) {
         WriteFileOrDie(dir_.Path("other.txt"), SomeText(299) + "x");
         c.data.datasets[0].source.paths = {dir_.Path("other.txt")};
       }}};
  TrainConfig config = Config("run");
  MustTrain(config, 3);
  const auto before = ReadTree(config.checkpoint_directory);
  for (const Change& change : changes) {
    TrainConfig changed = config;
    change.apply(changed);
    RecordingObserver observer;
    const absl::Status status = Train(changed, observer).status();
    EXPECT_EQ(ReasonOf(status), reason::kCheckpointMismatch) << change.name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(change.name));
    EXPECT_THAT(observer.steps, IsEmpty());
    EXPECT_TRUE(ReadTree(config.checkpoint_directory) == before);
  }
  // The same text elsewhere is the same data.
  fs::copy_file(dir_.Path("data.txt"), dir_.Path("copy.txt"));
  config.data.datasets[0].source.paths = {dir_.Path("copy.txt")};
  EXPECT_EQ(MustTrain(config).resumed.size(), 1u);
}

// Its own text says that it is this run's, its files are another model's.
TEST_F(ResumeTest, CheckpointThatLiesAboutItsModelIsRefused) {
  TrainConfig config = Config("run");
  MustTrain(config, 3);
  TrainConfig wider = Config("wider");
  nlohmann::json model = ByteModelConfig();
  model["intermediate_size"] = 64;
  wider.model = ModelFromConfig{model.dump()};
  MustTrain(wider, 3);
  const std::string manifest = Checkpoint(wider, 3) + "/manifest.json";
  nlohmann::json forged = nlohmann::json::parse(ReadFileOrDie(manifest));
  forged["identity"] =
      nlohmann::json::parse(ReadFileOrDie(Checkpoint(config, 3) + "/manifest.json"))["identity"];
  WriteFileOrDie(manifest, WithChecksum(forged));
  fs::remove_all(Checkpoint(config, 3));
  fs::rename(Checkpoint(wider, 3), Checkpoint(config, 3));
  RecordingObserver observer;
  const absl::Status status = Train(config, observer).status();
  EXPECT_EQ(ReasonOf(status), reason::kCheckpointMismatch) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("another model"));
}

TEST_F(ResumeTest, CheckpointsThatCannotBeSeenAreNotTakenForNone) {
  TrainConfig config = Config("run");
  fs::create_directories(fs::path(config.checkpoint_directory).parent_path());
  fs::create_symlink("checkpoints", config.checkpoint_directory);  // ELOOP
  RecordingObserver observer;
  const absl::Status status = Train(config, observer).status();
  EXPECT_EQ(ReasonOf(status), reason::kIoError) << status;
  EXPECT_THAT(observer.steps, IsEmpty());
}

// A process that lacks descriptors cannot judge a checkpoint: none is set aside, nor is an older
// one used.
TEST_F(ResumeTest, ShortageOfDescriptorsCondemnsNoCheckpoint) {
  TrainConfig config = Config("run");
  config.checkpoints.every_steps = 2;
  MustTrain(config, 4);
  const auto before = ReadTree(config.checkpoint_directory);
  const auto model = OpenModelInput(config);
  ASSERT_TRUE(model.ok());
  const auto store =
      *HostStore::Create(model->layout, OptimizerState::kFloat32, GradientPlane::kNone);
  ThreadPool pool(1);
  const RunFacts facts = FactsOf(Checkpoint(config, 4));
  const auto load = [&]() -> absl::StatusOr<std::optional<CheckpointInfo>> {
    PENSTOCK_ASSIGN_OR_RETURN(
        JobCheckpoints checkpoints,
        JobCheckpoints::Open(config.checkpoint_directory, {}, {[](const std::string&) {}, {}}));
    return checkpoints.LoadNewest(facts, *store, pool, testing::NoProgress);
  };
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t usual = limit.rlim_cur;
  const int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(lowest, 0);
  close(lowest);
  int failures = 0;
  for (rlim_t descriptors = 0;; ++descriptors) {
    limit.rlim_cur = static_cast<rlim_t>(lowest) + descriptors;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    const auto loaded = load();
    limit.rlim_cur = usual;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_TRUE(ReadTree(config.checkpoint_directory) == before) << descriptors;
    if (loaded.ok()) {
      ASSERT_TRUE(loaded->has_value());
      EXPECT_EQ((*loaded)->step, 4);
      break;
    }
    EXPECT_EQ(ReasonOf(loaded.status()), reason::kIoError) << loaded.status();
    ++failures;
  }
  EXPECT_GE(failures, 4) << "directory, manifest, source and three planes need one each";
}

TEST_F(ResumeTest, WhatKilledProcessesLeftIsRemoved) {
  const TrainConfig config = Config("run");
  MustTrain(config, 3);
  for (const char* left : {"/.5.staging-00000000deadbeef", "/.removed-1"}) {
    fs::create_directories(config.checkpoint_directory + left);
    WriteFileOrDie(config.checkpoint_directory + left + "/weights-00001.safetensors", "half");
  }
  EXPECT_EQ(MustTrain(config).resumed.size(), 1u);
  for (const auto& entry : fs::directory_iterator(config.checkpoint_directory)) {
    EXPECT_NE(entry.path().filename().string()[0], '.') << entry.path();
  }
}

}  // namespace
}  // namespace penstock
