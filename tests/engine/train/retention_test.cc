#include "engine/train/retention.h"

#include <string>
#include <utility>

#include "engine/base/thread_pool.h"
#include "engine/train/checkpoint_directory.h"
#include "engine/train/job_checkpoints.h"
#include "engine/train/model_directory.h"
#include "engine/train/save_schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/weights_testing.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RetentionTest, NewestStay) {
  EXPECT_THAT(ChooseRemovals({.keep_last = 2}, {.steps = {2, 4, 6, 8}, .held = {}}),
              ElementsAre(2, 4));
  EXPECT_THAT(ChooseRemovals({.keep_last = 9}, {.steps = {2, 4}, .held = {}}), IsEmpty());
  EXPECT_THAT(ChooseRemovals({.keep_last = 1}, {.steps = {}, .held = {}}), IsEmpty());
}

TEST(RetentionTest, EveryNthTheBestAndTheHeldStayBeside) {
  EXPECT_THAT(ChooseRemovals({.keep_last = 1, .keep_every_steps = 10},
                             {.steps = {3, 5, 7, 10, 15, 20, 25}, .held = {5, 99}, .best = {7}}),
              ElementsAre(3, 15));
}

TEST(RetentionTest, WhatARunMayRollBackToStays) {
  EXPECT_THAT(ChooseRemovals({.keep_last = 2, .keep_newest_multiple_of = 10},
                             {.steps = {10, 20, 23, 27, 29}, .held = {}}),
              ElementsAre(10, 23));
  EXPECT_EQ(NewestMultiple({10, 20, 23}, 10), 20);
  EXPECT_EQ(NewestMultiple({10, 20, 23}, 0), 23);
  EXPECT_EQ(NewestMultiple({7}, 10), std::nullopt);
}

TEST(RetentionTest, NewestStaysWhateverTheRule) {
  EXPECT_THAT(ChooseRemovals({.keep_last = 0}, {.steps = {4, 5}, .held = {}}), ElementsAre(4));
}

SaveSchedule::Clock::time_point At(int64_t seconds) {
  return SaveSchedule::Clock::time_point(std::chrono::seconds(seconds));
}

TEST(SaveScheduleTest, BySteps) {
  const SaveSchedule schedule({.every_steps = 3, .keep_every_steps = 5}, At(0));
  EXPECT_FALSE(schedule.Due(2, At(1'000'000)));
  EXPECT_TRUE(schedule.Due(3, At(0)));
  EXPECT_TRUE(schedule.Due(5, At(0))) << "what is to stay is saved";
}

TEST(SaveScheduleTest, ByTimeFromTheEndOfTheLast) {
  SaveSchedule schedule({.every_seconds = 100}, At(50));
  EXPECT_FALSE(schedule.Due(1, At(149)));
  EXPECT_TRUE(schedule.Due(1, At(150)));
  schedule.Saved(At(160));
  EXPECT_FALSE(schedule.Due(2, At(259)));
  EXPECT_TRUE(schedule.Due(2, At(260)));
}

TEST(SaveScheduleTest, FailedOneIsTriedAgain) {
  SaveSchedule schedule({}, At(0));
  EXPECT_FALSE(schedule.Due(1, At(1'000'000)));
  schedule.Failed(At(10));
  EXPECT_FALSE(schedule.Due(1, At(69)));
  EXPECT_TRUE(schedule.Due(1, At(70)));
  schedule.Saved(At(71));
  EXPECT_FALSE(schedule.Due(1, At(1'000'000)));
}

// A run that goes back to step 5 has the best of that time again.
TEST(JobCheckpointsTest, WhatWasBestWhereARunMayRollBackToStays) {
  const testing::TempDir temp;
  const auto config = testing::TinyConfig();
  testing::WriteModel(temp.Path("model"), config,
                      testing::MakeFiles(testing::SpecOf(config), WeightType::kFloat32, 1));
  const auto model = ModelDirectory::Open(temp.Path("model"));
  ASSERT_TRUE(model.ok()) << model.status();
  const auto store = testing::MakeStore((*model)->layout());
  ThreadPool pool(1);
  const std::string directory = temp.Path("checkpoints");
  auto opened = JobCheckpoints::Open(directory, {.keep_last = 1, .keep_newest_multiple_of = 5},
                                     {.log = [](const std::string&) {}, .removed = [](int64_t) {}});
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto save = [&](int64_t step, int64_t best) {
    const CheckpointInfo info{
        .step = step, .updates_applied = step, .best = BestEvaluation{.step = best, .loss = 1}};
    ASSERT_TRUE(
        opened->Write(*store, (*model)->source(), info, pool, testing::NoProgress, {}).ok());
    opened->Saved(step);
    opened->Prune(best);
  };
  for (const auto& [step, best] : {std::pair{4, 4}, {5, 4}, {6, 6}}) save(step, best);
  EXPECT_THAT(*ListCheckpointSteps(directory), ElementsAre(4, 5, 6));
  save(10, 6);  // the next place to go back to, of which 6 was the best
  EXPECT_THAT(*ListCheckpointSteps(directory), ElementsAre(6, 10));
}

}  // namespace
}  // namespace penstock
