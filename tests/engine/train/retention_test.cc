#include "engine/train/retention.h"

#include "engine/train/save_schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

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

}  // namespace
}  // namespace penstock
