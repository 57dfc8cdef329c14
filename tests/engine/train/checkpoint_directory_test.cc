#include "engine/train/checkpoint_directory.h"

#include <atomic>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/weights_testing.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using testing::TempDir;
using testing::WriteFileOrDie;

class CheckpointDirectoryTest : public ::testing::Test {
 protected:
  void Make(int64_t step) {
    fs::create_directories(CheckpointPath(path_, step));
    WriteFileOrDie(CheckpointPath(path_, step) + "/manifest.json", "{}");
  }
  bool Exists(const std::string& name) const { return fs::exists(path_ + "/" + name); }

  TempDir dir_;
  const std::string path_ = dir_.Path("checkpoints");
};

TEST_F(CheckpointDirectoryTest, ListsStepsAndNothingElse) {
  EXPECT_THAT(*ListCheckpointSteps(path_), IsEmpty()) << "no directory";
  Make(3);
  Make(12);
  for (const char* other : {"03", "-4", "0", "x", ".5.staging-1", ".unusable-7", "1e3"}) {
    fs::create_directory(path_ + "/" + other);
  }
  EXPECT_THAT(*ListCheckpointSteps(path_), ElementsAre(3, 12));
}

TEST_F(CheckpointDirectoryTest, HeldOnesAreNotTakenOut) {
  Make(3);
  ASSERT_TRUE(HoldCheckpoint(path_, 3, kPinHolder).ok());
  ASSERT_TRUE(HoldCheckpoint(path_, 3, "job-1").ok());
  ASSERT_TRUE(HoldCheckpoint(path_, 3, "job-1").ok()) << "again";
  EXPECT_THAT(*ListCheckpointHolds(path_), ElementsAre(Pair(3, ElementsAre("job-1", "pin"))));
  EXPECT_FALSE((*TakeOutCheckpoint(path_, 3, Leaving::kRemoved)).has_value());
  ASSERT_TRUE(ReleaseCheckpoint(path_, 3, kPinHolder).ok());
  EXPECT_FALSE((*TakeOutCheckpoint(path_, 3, Leaving::kRemoved)).has_value());
  ASSERT_TRUE(ReleaseCheckpoint(path_, 3, "job-1").ok());
  ASSERT_TRUE(ReleaseCheckpoint(path_, 3, "job-1").ok()) << "fine if it is not held";
  EXPECT_TRUE(Exists("3/manifest.json"));
  const auto out = TakeOutCheckpoint(path_, 3, Leaving::kRemoved);
  ASSERT_TRUE(out.ok() && out->has_value());
  EXPECT_TRUE(fs::exists(**out + "/manifest.json"));
  EXPECT_THAT(*ListCheckpointSteps(path_), IsEmpty());
  EXPECT_FALSE((*TakeOutCheckpoint(path_, 3, Leaving::kRemoved)).has_value()) << "gone";
}

TEST_F(CheckpointDirectoryTest, WhatIsGoneCannotBeHeld) {
  Make(3);
  const absl::Status status = HoldCheckpoint(path_, 4, kPinHolder);
  EXPECT_EQ(ReasonOf(status), reason::kCheckpointNotFound) << status;
  EXPECT_THAT(*ListCheckpointHolds(path_), IsEmpty());
}

// Each round one thread holds while another takes out: who was told that it holds still has it.
TEST_F(CheckpointDirectoryTest, AHoldThatWasGrantedIsKeptWhateverTheOrder) {
  int held = 0, taken = 0;
  for (int64_t step = 1; step <= 100; ++step) {
    Make(step);
    std::atomic<bool> go = false;
    absl::Status hold;
    std::thread holder([&] {
      while (!go) std::this_thread::yield();
      hold = HoldCheckpoint(path_, step, kPinHolder);
    });
    go = true;
    // Holding flushes to the device, so it takes longer than taking out.
    if (step % 2 == 0) {
      while (!Exists(absl::StrCat(".held-", step, "-pin"))) std::this_thread::yield();
    }
    const auto out = TakeOutCheckpoint(path_, step, Leaving::kRemoved);
    holder.join();
    ASSERT_TRUE(out.ok()) << out.status();
    ASSERT_TRUE(hold.ok() || absl::IsNotFound(hold)) << hold;
    EXPECT_FALSE(hold.ok() && out->has_value());
    EXPECT_EQ(Exists(absl::StrCat(step)), !out->has_value());
    held += hold.ok();
    taken += out->has_value();
  }
  EXPECT_GT(held, 0);
  EXPECT_GT(taken, 0);
}

TEST_F(CheckpointDirectoryTest, SupersededOnesStayUntilTheyAreDeleted) {
  Make(3);
  ASSERT_TRUE((*TakeOutCheckpoint(path_, 3, Leaving::kSuperseded)).has_value());
  EXPECT_THAT(*ListCheckpointSteps(path_), IsEmpty());
  TidyCheckpointDirectory(path_);
  EXPECT_TRUE(Exists(".superseded-3/manifest.json"));
  DeleteSuperseded(path_);
  EXPECT_FALSE(Exists(".superseded-3"));
}

TEST_F(CheckpointDirectoryTest, TidyingPutsBackWhatWasNotYetDecidedAndDeletesTheRest) {
  Make(3);
  Make(5);
  fs::rename(path_ + "/3", path_ + "/.leaving-3");
  fs::create_directories(path_ + "/.leaving-5");
  fs::create_directories(path_ + "/.removed-4/source");
  TidyCheckpointDirectory(path_);
  EXPECT_THAT(*ListCheckpointSteps(path_), ElementsAre(3, 5));
  EXPECT_TRUE(Exists("3/manifest.json"));
  EXPECT_TRUE(Exists("5/manifest.json"));
  EXPECT_FALSE(Exists(".removed-4"));
  EXPECT_FALSE(Exists(".leaving-5"));
}

}  // namespace
}  // namespace penstock
