// A run that stops, in whatever way, and goes on ends with the bytes of one that did not.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/engine.h"
#include "engine/exec/executor.h"
#include "engine/exec/gpu_devices.h"
#include "engine/memory/host_store.h"
#include "engine/train/checkpoint.h"
#include "engine/train/checkpoint_directory.h"
#include "engine/train/job_checkpoints.h"
#include "engine/train/model_input.h"
#include "engine/train/policy_choice.h"
#include "engine/train/train_with_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::ByteModelConfig;
using ::testing::Contains;
using testing::DeferringAndPlacing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::ReadFileOrDie;
using testing::ReadState;
using testing::ReadTree;
using testing::RecordingObserver;
using testing::SomeText;
using testing::TempDir;
using testing::TinyTrainConfig;
using testing::UntiedModel;
using testing::UsePolicy;
using testing::WithChecksum;
using testing::WriteFileOrDie;

class ResumeTest : public ::testing::Test {
 protected:
  // Two epochs with a smaller last step each, two micro-batches a step, evaluation after every
  // second one.
  TrainConfig Config(const std::string& run) {
    if (!fs::exists(dir_.Path("data.txt"))) WriteFileOrDie(dir_.Path("data.txt"), SomeText(300));
    TrainConfig config = TinyTrainConfig(dir_.Path(run), dir_.Path("data.txt"));
    config.evaluation = {.validation_fraction = 0.3, .every_steps = 2};
    config.schedule = {.warmup_steps = 2, .max_steps = 0, .epochs = 2};
    config.optimizer.weight_decay = 0.1;
    return config;
  }

  RecordingObserver MustTrain(const TrainConfig& config, int64_t stop_after = INT64_MAX) {
    RecordingObserver observer;
    observer.stop_after = stop_after;
    const auto summary = Train(config, observer);
    EXPECT_TRUE(summary.ok()) << summary.status();
    return observer;
  }

  // By a policy of its own instead of the planner's.
  RecordingObserver MustTrainBy(const Policy& policy, const TrainConfig& config,
                                int64_t stop_after = INT64_MAX) {
    RecordingObserver observer;
    observer.stop_after = stop_after;
    const auto summary = TrainWithPlan(
        config,
        [&](const ModelInput& model, TrainingPlan& plan) { UsePolicy(policy, model, plan); },
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

  TempDir dir_;
};

void ExpectSameSteps(const std::vector<StepRecord>& whole, const std::vector<StepRecord>& rest,
                     int64_t from) {
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
  // Of those that keep no state on the device.
  std::vector<Policy> policies = {{}};
  for (const Policy& policy : DeferringAndPlacing()) {
    const bool state = std::any_of(policy.placements.begin(), policy.placements.end(),
                                   [](const BlockPlacement& placement) { return placement.state; });
    if (!state) policies.push_back(policy);
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
    // Every pair of policies comes up.
    const RecordingObserver first = MustTrainBy(policies[k % policies.size()], config, k);
    const RecordingObserver rest =
        MustTrainBy(policies[k / policies.size() % policies.size()], config);
    ExpectSameSteps(uninterrupted.steps, rest.steps, k);
    EXPECT_EQ(Join(EvaluationsOf(first), EvaluationsOf(rest)), EvaluationsOf(uninterrupted));
    EXPECT_TRUE(ReadState(Checkpoint(config, kSteps)) == wanted);
  }
}

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

TEST_F(ResumeTest, OtherRoundingIsSaidInTheLog) {
  TrainConfig config = Config("run");
  MustTrain(config, 3);
  config.batch.micro_batch_tokens = 16;
  const RecordingObserver rest = MustTrain(config);
  EXPECT_EQ(rest.resumed.size(), 1u);
  EXPECT_THAT(rest.log, HasSubstr("batch.micro_batch_tokens: 32, now 16"));
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

// An executor whose device is lost when it is to begin the step that is numbered so, from 1.
class LosingExecutor : public Executor {
 public:
  LosingExecutor(std::unique_ptr<Executor> inner, int64_t at) : inner_(std::move(inner)), at_(at) {}

  absl::Status Prepare(const StepProgram& program) override { return inner_->Prepare(program); }
  absl::Status Run(const StepProgram& program, const StepInput& input,
                   StepResult& result) override {
    steps_ += program.updates != Updates::kNone && !input.micro_batches.empty();
    if (steps_ < at_) return inner_->Run(program, input, result);
    return Error(absl::StatusCode::kUnavailable, reason::kDeviceFailed, "off the bus");
  }
  std::span<const OpTime> timeline() const override { return inner_->timeline(); }

 private:
  const std::unique_ptr<Executor> inner_;
  const int64_t at_;
  int64_t steps_ = 0;
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
                    [](const BlockPlacement& placement) { return placement.state; });
    const bool deferred = policy.update_time == UpdateTime::kNextStep;
    for (int64_t at = 1; at <= total; ++at) {
      SCOPED_TRACE(absl::StrCat("policy ", number, " lost in step ", at));
      const TrainConfig config = config_of(absl::StrCat("run", number, "-", at));
      const auto train = [&](int64_t lost_at, RecordingObserver& observer) {
        return TrainWithPlan(
                   config,
                   [&](const ModelInput& model, TrainingPlan& plan) {
                     UsePolicy(policy, model, plan);
                     plan.wrap_executor = [=](std::unique_ptr<Executor> inner) {
                       return std::make_unique<LosingExecutor>(std::move(inner), lost_at);
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
