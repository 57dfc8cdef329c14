#include "engine/train/plan_watch.h"

#include "gtest/gtest.h"

namespace penstock {
namespace {

constexpr int64_t kPlannedBytes = 1000;

class PlanWatchTest : public ::testing::Test {
 protected:
  // So many steps; how many misses were said.
  int Steps(int count, double seconds, int64_t host_bytes = kPlannedBytes) {
    int said = 0;
    for (int i = 0; i < count; ++i) {
      last_ = watch_.Add({.step = ++step_,
                          .step_seconds = seconds,
                          .predicted_step_seconds = 1,
                          .host_peak_bytes = host_bytes,
                          .planned_host_peak_bytes = kPlannedBytes});
      said += last_.has_value() ? 1 : 0;
    }
    return said;
  }

  PlanWatch watch_;
  int64_t step_ = 0;
  std::optional<PlanMissRecord> last_;
};

TEST_F(PlanWatchTest, StepsAsPredictedSayNothing) {
  EXPECT_EQ(Steps(PlanWatch::kWarmUpSteps, 50), 0);
  EXPECT_EQ(Steps(100, 1.09), 0);
  EXPECT_EQ(Steps(96, 0.91), 0);
}

TEST_F(PlanWatchTest, ADriftThatLastsIsSaidOnceAndAgainOnlyAfterItWasGone) {
  Steps(PlanWatch::kWarmUpSteps, 1);
  EXPECT_EQ(Steps(PlanWatch::kCompared - 1, 1.2), 0);
  EXPECT_EQ(Steps(1, 1.2), 1);
  EXPECT_EQ(last_->step, PlanWatch::kWarmUpSteps + PlanWatch::kCompared);
  EXPECT_NEAR(last_->measured_step_seconds, 1.2, 1e-12);
  EXPECT_EQ(last_->predicted_step_seconds, 1);
  EXPECT_EQ(Steps(10 * PlanWatch::kCompared, 1.3), 0);
  EXPECT_EQ(Steps(PlanWatch::kCompared, 1), 0);
  EXPECT_EQ(Steps(PlanWatch::kCompared, 0.8), 1);  // faster is a miss too
}

TEST_F(PlanWatchTest, OneSlowStepIsNoDrift) {
  Steps(PlanWatch::kWarmUpSteps + 3, 1);
  EXPECT_EQ(Steps(1, 1.7), 0);
  EXPECT_EQ(Steps(3 * PlanWatch::kCompared, 1), 0);
}

TEST_F(PlanWatchTest, MoreMemoryThanPlannedIsAMiss) {
  Steps(PlanWatch::kWarmUpSteps, 1);
  EXPECT_EQ(Steps(PlanWatch::kCompared, 1, kPlannedBytes + 1), 1);
  EXPECT_EQ(last_->host_peak_bytes, kPlannedBytes + 1);
}

TEST(ResidentBytesTest, CountsWhatIsTouched) {
  const int64_t before = ResidentBytes();
  EXPECT_GT(before, 0);
  const std::vector<char> held(64 << 20, 1);
  EXPECT_GE(ResidentBytes(), before + (60 << 20) + held[0] - 1);
}

}  // namespace
}  // namespace penstock
