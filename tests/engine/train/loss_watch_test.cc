#include "engine/train/loss_watch.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace penstock {
namespace {

// Losses that fall from 4 to 2 with noise, as those of a run that goes well.
double UsualLoss(int64_t step, std::mt19937& random) {
  std::normal_distribution<double> noise(0, 0.05);
  return 2 + 2 * std::exp(-static_cast<double>(step) / 300) + noise(random);
}

TEST(LossWatchTest, ARunThatGoesWellHasNoSpike) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    LossWatch watch(6);
    for (int64_t step = 0; step < 2000; ++step) {
      const LossWatch::Verdict verdict = watch.Add(UsualLoss(step, random));
      EXPECT_FALSE(verdict.spike) << "seed " << seed << " step " << step << " z "
                                  << verdict.z_score;
    }
  }
}

TEST(LossWatchTest, ALossOutOfLineIsASpikeAndSoIsTheNext) {
  std::mt19937 random(1);
  LossWatch watch(6);
  for (int64_t step = 0; step < 600; ++step) {
    const bool odd = step == 300 || step == 301 || step == 500;
    const double usual = UsualLoss(step, random);
    const LossWatch::Verdict verdict = watch.Add(odd ? usual + 3 : usual);
    EXPECT_EQ(verdict.spike, odd) << step;
    EXPECT_EQ(verdict.begins, step == 300 || step == 500) << step;
    EXPECT_TRUE(!odd || std::abs(verdict.mean - usual) < 0.5) << verdict.mean;
  }
}

TEST(LossWatchTest, NothingIsJudgedBeforeThereIsEnoughToJudgeBy) {
  LossWatch watch(6);
  for (int64_t step = 0; step < LossWatch::kWarmUpSteps; ++step) {
    const LossWatch::Verdict verdict = watch.Add(step % 7 == 0 ? 50 : 1);
    EXPECT_EQ(verdict.z_score, 0);
    EXPECT_FALSE(verdict.spike);
  }
}

TEST(LossWatchTest, ALevelThatStaysBecomesTheUsualOne) {
  LossWatch watch(6);
  for (int64_t step = 0; step < 100; ++step) watch.Add(2);
  EXPECT_FALSE(watch.Add(2.1).spike) << "losses that were all the same make no spike of 5%";
  EXPECT_TRUE(watch.Add(4).begins);
  int64_t spikes = 1;
  while (watch.Add(4).spike) {
    ASSERT_LT(++spikes, 100);
  }
  EXPECT_FALSE(watch.Add(4).spike);
  EXPECT_FALSE(watch.Add(1).spike) << "less is no spike";
}

TEST(LossWatchTest, ItsMemoryIsAllItHas) {
  std::mt19937 random(2);
  LossWatch whole(4), first(4);
  std::vector<double> losses;
  for (int64_t step = 0; step < 200; ++step) losses.push_back(UsualLoss(step, random));
  losses[120] += 3;
  for (const double loss : losses) {
    const LossWatch::Verdict wanted = whole.Add(loss);
    LossWatch second(4);  // another process
    second.set_memory(first.memory());
    const LossWatch::Verdict found = second.Add(loss);
    EXPECT_EQ(found.z_score, wanted.z_score);
    EXPECT_EQ(found.begins, wanted.begins);
    first.set_memory(second.memory());
  }
}

}  // namespace
}  // namespace penstock
