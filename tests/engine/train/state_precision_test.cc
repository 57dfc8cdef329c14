// Training with the moments in each type: how far the curves are from fp32's.
#include <algorithm>
#include <cmath>
#include <string>

#include "engine/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

using testing::RecordingObserver;
using testing::SomeText;
using testing::TempDir;
using testing::TinyTrainConfig;
using testing::WriteFileOrDie;

constexpr int64_t kSteps = 300;

struct Curve {
  double start = 0, end = 0;  // mean loss of the first and the last steps
  double evaluation = 0;      // of held-out text, after the last
  double largest_gap = 0;     // to another curve, of any ten steps' mean
};

double MeanLoss(const RecordingObserver& run, int64_t first, int64_t count) {
  double sum = 0;
  for (int64_t i = first; i < first + count; ++i) sum += run.steps[i].loss;
  return sum / static_cast<double>(count);
}

class StatePrecisionTest : public ::testing::Test {
 protected:
  StatePrecisionTest() { WriteFileOrDie(dir_.Path("data.txt"), SomeText(20000)); }

  RecordingObserver Run(MomentType type, double beta2) {
    const std::string name = std::string(MomentTypeName(type)) + std::to_string(beta2);
    TrainConfig config = TinyTrainConfig(dir_.Path(name), dir_.Path("data.txt"));
    config.evaluation = {.validation_fraction = 0.1, .every_steps = kSteps};
    config.schedule = {.warmup_steps = 10, .max_steps = kSteps};
    // Higher ones let curves that begin with a rounding's difference part by themselves.
    config.optimizer.learning_rate = 4e-3;
    config.optimizer.beta2 = beta2;
    config.optimizer.weight_decay = 0.1;
    config.optimizer.max_grad_norm = 1;
    config.moment_type = type;
    RecordingObserver observer;
    const auto summary = Train(config, observer);
    EXPECT_TRUE(summary.ok()) << summary.status();
    return observer;
  }

  static Curve CurveOf(const RecordingObserver& run, const RecordingObserver& reference) {
    constexpr int64_t kWindow = 10;
    Curve curve{.start = MeanLoss(run, 0, kWindow),
                .end = MeanLoss(run, kSteps - 50, 50),
                .evaluation = run.evaluations.back().loss};
    for (int64_t first = 0; first + kWindow <= kSteps; first += kWindow) {
      curve.largest_gap =
          std::max(curve.largest_gap,
                   std::abs(MeanLoss(run, first, kWindow) - MeanLoss(reference, first, kWindow)));
    }
    return curve;
  }

  TempDir dir_;
};

// The same data in the same order; with beta2 at which a step changes v by far less than half of
// what lies between two codes, too, so that rounding to the nearest would let v stand still.
TEST_F(StatePrecisionTest, TrainsAsWithMomentsInFloat32) {
  for (const double beta2 : {0.95, 0.999}) {
    const RecordingObserver reference = Run(MomentType::kFloat32, beta2);
    const Curve wanted = CurveOf(reference, reference);
    ASSERT_LT(wanted.end, wanted.start - 1) << "it must learn for a difference to show";
    for (const auto& [type, gap] :
         {std::pair(MomentType::kBfloat16, 0.03), std::pair(MomentType::kInt8Blocks, 0.1)}) {
      SCOPED_TRACE(MomentTypeName(type));
      const Curve found = CurveOf(Run(type, beta2), reference);
      EXPECT_NEAR(found.end, wanted.end, gap);
      EXPECT_NEAR(found.evaluation, wanted.evaluation, gap);
      EXPECT_LT(found.largest_gap, gap);
      RecordProperty(std::string(MomentTypeName(type)) + " " + std::to_string(beta2),
                     std::to_string(wanted.end) + " " + std::to_string(found.end - wanted.end) +
                         " " + std::to_string(found.evaluation - wanted.evaluation) + " " +
                         std::to_string(found.largest_gap));
    }
  }
}

}  // namespace
}  // namespace penstock
