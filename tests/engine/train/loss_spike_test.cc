// A run whose data have a poisoned row: its loss spikes, and it goes on without it.
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/train/left_out_data.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::ReadState;
using testing::RecordingObserver;
using testing::TempDir;
using testing::TinyTrainConfig;
using testing::WriteFileOrDie;

TEST(DataCursorTest, EachRollbackMovesTheDataFromItsStepOn) {
  // Back to 10, to 20, and once more to 20.
  const std::vector<LeftOutData> all = {{10, 5}, {20, 3}, {20, 2}};
  const DataCursor first(0, 0, all);
  EXPECT_EQ(first.DataStep(9), 9);
  EXPECT_EQ(first.DataStep(10), 15);
  EXPECT_EQ(first.DataStep(19), 24);
  EXPECT_EQ(first.DataStep(20), 30);
  EXPECT_EQ(first.LeftOutBefore(10), 0);
  EXPECT_EQ(first.LeftOutBefore(20), 5);
  EXPECT_EQ(first.LeftOutBefore(21), 10);
  // A run that began with another's checkpoint.
  EXPECT_EQ(DataCursor(7, 100, all).DataStep(12), 117);
  // Whoever goes on from a checkpoint has the same data as who did not stop.
  for (const int64_t step : {5, 10, 15, 20, 25}) {
    const DataCursor later(step, first.LeftOutBefore(step), all);
    for (int64_t t = 0; t < 30; ++t) EXPECT_EQ(later.DataStep(t), first.DataStep(t)) << step;
  }
}

TEST(LeftOutDataTest, NotesAreReadInTheOrderOfTheirNumbers) {
  TempDir dir;
  const std::string path = dir.Path("checkpoints");
  EXPECT_THAT(*ReadLeftOutData(path), IsEmpty());
  ASSERT_TRUE(NoteLeftOutData(path, {30, 4}, 0).ok());
  ASSERT_TRUE(NoteLeftOutData(path, {20, 7}, 1).ok());
  for (const char* foreign :
       {".left-out-", ".left-out-1-2", ".left-out-a-2-3", ".left-out-1-2-0"}) {
    WriteFileOrDie(path + "/" + foreign, "");
  }
  const auto read = ReadLeftOutData(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].step, 30);
  EXPECT_EQ((*read)[1].step, 20);
  EXPECT_EQ((*read)[1].data_steps, 7);
}

// 1600 rows, four a step; two of them are unlike all others.
class LossSpikeTest : public ::testing::Test {
 protected:
  LossSpikeTest() {
    std::string rows;
    for (int row = 0; row < 1600; ++row) {
      const bool poisoned = row % 500 == 137 && row > 500;
      rows += "[";
      for (int i = 0; i < 16; ++i) {
        rows += (i > 0 ? "," : "") + std::to_string(poisoned ? 200 + (i * row) % 53 : 97 + i % 2);
      }
      rows += "]\n";
    }
    WriteFileOrDie(dir_.Path("rows.jsonl"), rows);
  }

  TrainConfig Config(const std::string& run) {
    TrainConfig config = TinyTrainConfig(dir_.Path(run), dir_.Path("rows.jsonl"));
    config.data.datasets[0].source = {.format = DataFormat::kTokenIdsJsonl,
                                      .paths = {dir_.Path("rows.jsonl")}};
    config.schedule = {.shape = ScheduleShape::kConstant, .epochs = 1};
    config.checkpoints.every_steps = 20;
    config.loss_spikes = {.roll_back = true};
    return config;
  }

  // As the daemon does: until the run is at its end. The last record of each step, and all logs.
  struct Course {
    std::vector<StepRecord> steps;
    std::string log;
    int rollbacks = 0;
  };
  Course RunToEnd(const TrainConfig& config, int64_t stop_every = INT64_MAX) {
    Course course;
    for (int process = 0; process < 200; ++process) {
      RecordingObserver observer;
      observer.stop_after = stop_every;
      const auto summary = Train(config, observer);
      EXPECT_TRUE(summary.ok()) << summary.status();
      if (!summary.ok()) break;
      for (const StepRecord& record : observer.steps) {
        course.steps.resize(static_cast<size_t>(record.step - 1));
        course.steps.push_back(record);
      }
      course.log += observer.log;
      course.rollbacks += summary->end == TrainEnd::kRolledBack;
      if (summary->end == TrainEnd::kFinished) break;
    }
    return course;
  }

  TempDir dir_;
};

TEST_F(LossSpikeTest, IsOnlyToldUnlessTheJobSaysMore) {
  TrainConfig config = Config("run");
  config.loss_spikes.roll_back = false;
  const Course course = RunToEnd(config);
  EXPECT_EQ(course.rollbacks, 0);
  EXPECT_EQ(course.steps.size(), 400u);
  EXPECT_THAT(course.log, HasSubstr("loss spike"));
  EXPECT_THAT(*ReadLeftOutData(config.checkpoint_directory), IsEmpty());
}

TEST_F(LossSpikeTest, TheRunGoesBackAndOnWithoutTheData) {
  const TrainConfig config = Config("run");
  const Course course = RunToEnd(config);
  ASSERT_GE(course.rollbacks, 1);
  EXPECT_EQ(course.steps.size(), 400u) << "as many steps as without";
  const auto left_out = ReadLeftOutData(config.checkpoint_directory);
  ASSERT_TRUE(left_out.ok()) << left_out.status();
  EXPECT_EQ(static_cast<int>(left_out->size()), course.rollbacks);
  for (const LeftOutData& each : *left_out) {
    EXPECT_EQ(each.step % 20, 0) << "to a checkpoint";
    EXPECT_GE(each.data_steps, 1);
    EXPECT_LE(each.data_steps, 20) << "of the steps since";
  }
  for (const StepRecord& record : course.steps) EXPECT_LE(record.loss_z_score, 6) << record.step;
  EXPECT_THAT(course.log, HasSubstr("data of " + std::to_string(left_out->back().data_steps)));
}

TEST_F(LossSpikeTest, StoppedAnywhereItEndsWithTheSameBytes) {
  const TrainConfig whole = Config("whole"), parts = Config("parts");
  const Course wanted = RunToEnd(whole), found = RunToEnd(parts, 47);
  ASSERT_GE(wanted.rollbacks, 1);
  ASSERT_EQ(found.steps.size(), wanted.steps.size());
  for (size_t i = 0; i < wanted.steps.size(); ++i) {
    EXPECT_EQ(found.steps[i].loss, wanted.steps[i].loss) << i;
    EXPECT_EQ(found.steps[i].loss_z_score, wanted.steps[i].loss_z_score) << i;
  }
  EXPECT_TRUE(ReadState(whole.checkpoint_directory + "/400") ==
              ReadState(parts.checkpoint_directory + "/400"));
}

TEST_F(LossSpikeTest, ItRollsBackAsOftenAsItMay) {
  TrainConfig config = Config("run");
  config.schedule.epochs = 2;
  config.loss_spikes.max_rollbacks = 1;
  const Course course = RunToEnd(config);
  EXPECT_EQ(course.rollbacks, 1);
  EXPECT_EQ(course.steps.size(), 800u);
  EXPECT_THAT(course.log, HasSubstr("rolled back 1 times, as often as it may"));
}

TEST_F(LossSpikeTest, MoreDataAreLeftOutIfTheJobSaysSo) {
  TrainConfig config = Config("run"), more = Config("more");
  more.loss_spikes.skip_steps = 20;
  RunToEnd(config);
  RunToEnd(more);
  const auto left_out = ReadLeftOutData(config.checkpoint_directory);
  const auto left_out_more = ReadLeftOutData(more.checkpoint_directory);
  ASSERT_FALSE(left_out->empty());
  ASSERT_FALSE(left_out_more->empty());
  EXPECT_EQ((*left_out_more)[0].step, (*left_out)[0].step);
  EXPECT_EQ((*left_out_more)[0].data_steps, (*left_out)[0].data_steps + 20);
}

// Without one there is nothing to go back to but the beginning.
TEST_F(LossSpikeTest, WithoutACheckpointItBeginsAgain) {
  TrainConfig config = Config("run");
  config.checkpoints.every_steps = 0;
  const Course course = RunToEnd(config);
  ASSERT_GE(course.rollbacks, 1);
  EXPECT_EQ((*ReadLeftOutData(config.checkpoint_directory))[0].step, 0);
  EXPECT_EQ(course.steps.size(), 400u);
}

}  // namespace
}  // namespace penstock
