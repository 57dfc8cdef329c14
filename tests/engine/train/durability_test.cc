// Runs that are killed, whose disk fails, or whose power is cut at every call that changes a file:
// whoever goes on ends with the bytes of a run that nothing happened to.
//
// A few of these calls in an ordinary run of the tests; all of them, which takes minutes, with
// PENSTOCK_EVERY_CALL=1 in the environment.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/audit/verify.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/engine.h"
#include "engine/provenance/signing_key.h"
#include "engine/train/checkpoint.h"
#include "engine/train/checkpoint_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/fault_files.h"
#include "tests/engine/train/power_cut.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::DiskModel;
using testing::FileCall;
using testing::FileCallsSoFar;
using testing::FileFault;
using testing::FileTree;
using testing::ReadState;
using testing::RecordingObserver;
using testing::SomeText;
using testing::StartFileFaults;
using testing::StopFileFaults;
using testing::Survivors;
using testing::TempDir;
using testing::TinyTrainConfig;
using testing::WriteFileOrDie;

constexpr int64_t kSteps = 3;

// Of how many calls one is tried.
int64_t Stride() { return std::getenv("PENSTOCK_EVERY_CALL") != nullptr ? 1 : 5; }

// What a process that dies has told by then.
struct Told {
  int64_t steps = 0;  // finished
  int64_t saved = 0;  // step of the last checkpoint
};

class TellingObserver : public RecordingObserver {
 public:
  explicit TellingObserver(int fd) : fd_(fd) {}
  void OnStep(const StepRecord& record) override {
    told_.steps = record.step;
    Tell();
  }
  void OnCheckpointSaved(const CheckpointRecord& record) override {
    told_.saved = record.step;
    Tell();
  }

 private:
  void Tell() const { (void)!write(fd_, &told_, sizeof(told_)); }
  const int fd_;
  Told told_;
};

class DurabilityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFileOrDie(dir_.Path("data.txt"), SomeText(300));
    const auto key = SigningKey::LoadOrCreate(dir_.Path("signing.key"));
    ASSERT_TRUE(key.ok()) << key.status();
    public_key_ = key->public_key();
    whole_ = Config("whole");
    ASSERT_TRUE(Train(whole_, observer_).ok());
    ASSERT_EQ(observer_.total_steps, kSteps);
    tensors_ = TensorsOf(whole_);
    exported_ = ReadState(whole_.output_directory);
  }

  // A checkpoint after each step, of which one is kept, and an export, in a directory of the run's
  // own.
  TrainConfig Config(const std::string& name) {
    fs::create_directories(dir_.Path(name));
    TrainConfig config = TinyTrainConfig(dir_.Path(name), dir_.Path("data.txt"));
    config.schedule = {.max_steps = kSteps};
    config.checkpoints = {.every_steps = 1, .keep_last = 1};
    config.output_directory = dir_.Path(name) + "/out";
    config.compute_threads = 1;
    config.provenance = {.job = "jobs/" + name,
                         .attempt = 1,
                         .spec = "{}",
                         .signing_key_path = dir_.Path("signing.key")};
    return config;
  }

  static std::map<std::string, std::string> TensorsOf(const TrainConfig& config) {
    return ReadState(CheckpointPath(config.checkpoint_directory, kSteps));
  }

  // The calls of an undisturbed run.
  std::vector<FileCall> Record(RecordingObserver& observer) {
    const TrainConfig config = Config("recorded");
    StartFileFaults(dir_.Path("recorded"), {});
    EXPECT_TRUE(Train(config, observer).ok());
    return StopFileFaults();
  }

  // Runs the job in a process of its own, which dies by the fault.
  Told RunUntilKilled(const TrainConfig& config, const std::string& directory,
                      const FileFault& fault) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      StartFileFaults(directory, fault);
      TellingObserver observer(ends[1]);
      _exit(Train(config, observer).ok() ? 0 : 1);
    }
    close(ends[1]);
    Told told, next;
    while (read(ends[0], &next, sizeof(next)) == sizeof(next)) told = next;
    close(ends[0]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "status " << status;
    return told;
  }

  // Nothing is listed that does not load.
  void ExpectListedOnesAreWhole(const TrainConfig& config) {
    const auto steps = ListCheckpointSteps(config.checkpoint_directory);
    ASSERT_TRUE(steps.ok()) << steps.status();
    for (const int64_t step : *steps) {
      const auto opened =
          OpenCheckpoint(CheckpointPath(config.checkpoint_directory, step), Verification::kHashes);
      EXPECT_TRUE(opened.ok()) << opened.status();
      const auto verified = VerifyDirectory(CheckpointPath(config.checkpoint_directory, step),
                                            {.trusted_key = public_key_, .pool = pool_});
      ASSERT_TRUE(verified.ok()) << verified.status();
      EXPECT_FALSE(verified->any(Verdict::kWrong));
    }
  }

  // The run ends as if nothing had happened and leaves nothing lying about. Gives the step that it
  // went on from.
  int64_t ExpectRunGoesOn(const TrainConfig& config, const std::string& directory) {
    StartFileFaults(directory, {});
    RecordingObserver observer;
    const auto summary = Train(config, observer);
    StopFileFaults();
    EXPECT_TRUE(summary.ok()) << summary.status();
    EXPECT_TRUE(TensorsOf(config) == tensors_);
    EXPECT_TRUE(ReadState(config.output_directory) == exported_);
    for (const auto& entry : fs::recursive_directory_iterator(directory)) {
      const std::string name = entry.path().filename().string();
      const bool left = absl::StrContains(name, ".staging-") || absl::StrContains(name, ".tmp.") ||
                        absl::StartsWith(name, ".leaving-") || absl::StartsWith(name, ".removed-");
      EXPECT_FALSE(left) << entry.path();
    }
    return observer.resumed.empty() ? 0 : observer.resumed[0].step;
  }

  TempDir dir_;
  std::string public_key_;  // of signing.key there
  ThreadPool pool_{1};
  TrainConfig whole_;
  RecordingObserver observer_;
  std::map<std::string, std::string> tensors_, exported_;
};

TEST_F(DurabilityTest, KilledAtAnyCallThatChangesAFileTheRunGoesOn) {
  RecordingObserver undisturbed;
  const std::vector<FileCall> calls = Record(undisturbed);
  ASSERT_GT(calls.size(), 100u);
  int64_t kills = 0, resumed = 0, most_lost = 0;
  for (size_t at = 0; at < calls.size(); at += Stride()) {
    for (const FileFault::Kind kind : {FileFault::Kind::kKill, FileFault::Kind::kTear}) {
      // Killed after a call is killed before the next.
      const bool is_write = calls[at].kind == FileCall::Kind::kWrite;
      if (kind == FileFault::Kind::kTear && !is_write) continue;
      SCOPED_TRACE(absl::StrCat("call ", at, kind == FileFault::Kind::kKill ? "" : ", torn"));
      const std::string directory = dir_.Path("run");
      const TrainConfig config = Config("run");
      const Told told =
          RunUntilKilled(config, directory, {.kind = kind, .at = static_cast<int64_t>(at)});
      ExpectListedOnesAreWhole(config);
      const int64_t from = ExpectRunGoesOn(config, directory);
      EXPECT_GE(from, told.saved) << "what was told to be saved is";
      // A checkpoint is written during the step after its own, which may have been finished.
      EXPECT_GE(from, told.steps - 2) << "more lost than the interval and the step of writing";
      ++kills;
      resumed += from > 0;
      most_lost = std::max(most_lost, told.steps - from);
      fs::remove_all(directory);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(resumed, kills / 3);
  std::printf(
      "%ld kills at %zu calls: %ld runs went on from a checkpoint, at most %ld steps lost\n", kills,
      calls.size(), resumed, most_lost);
}

TEST_F(DurabilityTest, ACallThatFailsIsNamedAndLosesNothing) {
  struct Case {
    FileFault::Kind kind;
    int error;
    int64_t stride;
  };
  constexpr Case kCases[] = {{FileFault::Kind::kFail, EIO, 1},
                             {FileFault::Kind::kFail, ENOSPC, 3},
                             {FileFault::Kind::kShorten, 0, 2},
                             {FileFault::Kind::kFailAlways, ENOSPC, 7},
                             {FileFault::Kind::kFailAlways, EROFS, 11}};
  RecordingObserver undisturbed;
  const auto calls = static_cast<int64_t>(Record(undisturbed).size());
  int64_t faults = 0, survived = 0;
  for (const Case& fault : kCases) {
    for (int64_t at = 0; at < calls; at += fault.stride * Stride()) {
      SCOPED_TRACE(absl::StrCat("call ", at, " error ", fault.error));
      const std::string directory = dir_.Path("run");
      const TrainConfig config = Config("run");
      StartFileFaults(directory, {.kind = fault.kind, .at = at, .error = fault.error});
      RecordingObserver observer;
      const absl::Status status = Train(config, observer).status();
      StopFileFaults();
      const auto reason = ReasonOf(status);
      EXPECT_TRUE(status.ok() || reason == reason::kIoError || reason == reason::kDiskInsufficient)
          << status;
      EXPECT_TRUE(fault.kind != FileFault::Kind::kShorten || status.ok()) << status;
      for (const auto& [step, error] : observer.failed) EXPECT_FALSE(error.message().empty());
      ExpectListedOnesAreWhole(config);
      if (status.ok()) {
        EXPECT_TRUE(ReadState(config.output_directory) == exported_);
      } else {
        ExpectRunGoesOn(config, directory);
      }
      ++faults;
      survived += status.ok();
      fs::remove_all(directory);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(survived, faults / 2);
  std::printf("%ld faults: %ld runs took no harm, the others went on when asked to\n", faults,
              survived);
}

// Notes after how many calls each checkpoint was said to be saved.
class NotingObserver : public RecordingObserver {
 public:
  void OnCheckpointSaved(const CheckpointRecord& record) override {
    saved_after[FileCallsSoFar()] = record.step;
  }
  std::map<int64_t, int64_t> saved_after;
};

TEST_F(DurabilityTest, WhateverAPowerCutLeavesTheRunGoesOnFromWhatWasSaidToBeSaved) {
  NotingObserver observer;
  const std::vector<FileCall> calls = Record(observer);
  ASSERT_GT(calls.size(), 100u);
  ASSERT_EQ(observer.saved_after.size(), static_cast<size_t>(kSteps));
  DiskModel disk;
  disk.Apply({.kind = FileCall::Kind::kMakeDirectory, .path = "cache"});  // made before it began
  disk.Apply({.kind = FileCall::Kind::kSync, .path = ""});
  std::set<std::pair<FileTree, int64_t>> seen;  // with what must be there
  int64_t saved = 0, tried = 0;
  for (size_t done = 0; done <= calls.size(); ++done) {
    if (done > 0) disk.Apply(calls[done - 1]);
    const auto told = observer.saved_after.find(static_cast<int64_t>(done));
    if (told != observer.saved_after.end()) saved = told->second;
    for (const Survivors survivors : {Survivors::kSynced, Survivors::kNames, Survivors::kContents,
                                      Survivors::kAll, Survivors::kSome}) {
      SCOPED_TRACE(absl::StrCat("after ", done, " calls, ", static_cast<int>(survivors)));
      const FileTree tree = disk.AfterPowerCut(survivors, done);
      if (!seen.emplace(tree, saved).second || static_cast<int64_t>(seen.size()) % Stride() != 0) {
        continue;
      }
      ++tried;
      const std::string directory = dir_.Path("run");
      const TrainConfig config = Config("run");
      fs::remove_all(directory);
      fs::create_directory(directory);
      testing::MakeTree(tree, directory);
      EXPECT_GE(ExpectRunGoesOn(config, directory), saved);
      fs::remove_all(directory);
      if (HasFailure()) return;
    }
  }
  std::printf("%ld of %zu states after power cuts at %zu calls: all went on\n", tried, seen.size(),
              calls.size() + 1);
}

}  // namespace
}  // namespace penstock
