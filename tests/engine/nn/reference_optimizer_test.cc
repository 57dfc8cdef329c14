// The optimizer alone against torch.optim.AdamW: it is given the reference's own gradients, so
// nothing but the global norm, the clip scale and the update is compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/thread_pool.h"
#include "engine/kernels/adamw.h"
#include "engine/kernels/sum_of_squares.h"
#include "engine/memory/planes.h"
#include "tests/engine/nn/comparison.h"
#include "tests/engine/nn/reference_case.h"

namespace penstock {
namespace {

constexpr double kBound = 1e-6;

class ReferenceOptimizerTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    absl::StatusOr<ReferenceCase> loaded = LoadReferenceCase(GetParam());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    reference_ = *std::move(loaded);
  }

  const std::vector<float>& Gradient(const std::string& name) const {
    return reference_.value(absl::StrCat("grad.", name));
  }

  double GradientNorm() const {
    double squares = 0;
    for (const auto& [name, weight] : reference_.weights) {
      const std::vector<float>& gradient = Gradient(name);
      squares += SumOfSquares(context_, gradient.data(), static_cast<int64_t>(gradient.size()));
    }
    return std::sqrt(squares);
  }

  // Parameter `name` after the first step.
  std::vector<float> Update(const std::string& name, double epsilon, double scale) const {
    const std::vector<float>& weight = reference_.weights.at(name);
    const std::vector<float>& gradient = Gradient(name);
    const int64_t count = static_cast<int64_t>(weight.size());
    std::vector<uint16_t> hi(count);
    std::vector<int16_t> lo(count);
    std::vector<float> m(count), v(count), updated(count);
    SplitPlanes(weight.data(), count, hi.data(), lo.data());
    const bool spared = absl::EndsWith(name, "norm.weight") || absl::EndsWith(name, ".bias");
    const absl::Status status =
        AdamW(context_, {.hi = hi.data(),
                         .lo = lo.data(),
                         .m = m.data(),
                         .v = v.data(),
                         .gradient = gradient.data(),
                         .count = count,
                         .learning_rate = reference_.learning_rate,
                         .beta1 = reference_.beta1,
                         .beta2 = reference_.beta2,
                         .epsilon = epsilon,
                         .weight_decay = spared ? 0 : reference_.weight_decay,
                         .gradient_scale = static_cast<float>(scale),
                         .bias_correction1 = 1 - reference_.beta1,
                         .bias_correction2 = 1 - reference_.beta2});
    EXPECT_TRUE(status.ok()) << status;
    JoinPlanes(hi.data(), lo.data(), count, updated.data());
    return updated;
  }

  void ExpectUpdate(const std::string& kind, double epsilon) const {
    const double scale = reference_.max_norm / GradientNorm();
    ASSERT_LT(scale, 1);
    double worst = 0;
    for (const auto& [name, weight] : reference_.weights) {
      const Difference difference =
          Compare(Update(name, epsilon, scale), reference_.value(absl::StrCat(kind, ".", name)));
      EXPECT_LE(difference.worst(), kBound) << name << " " << difference;
      worst = std::max(worst, difference.worst());
    }
    RecordProperty("worst", absl::StrCat(worst));
  }

  ReferenceCase reference_;
  mutable ThreadPool pool_{1};
  cpu::Context context_{&pool_};
};

TEST_P(ReferenceOptimizerTest, GlobalNormMatches) {
  EXPECT_NEAR(GradientNorm() / reference_.value("grad_norm")[0], 1, kBound);
}

TEST_P(ReferenceOptimizerTest, ClippedAndDecayedStepMatches) {
  ExpectUpdate("updated", reference_.epsilon);
}

TEST_P(ReferenceOptimizerTest, StepWithWideEpsilonMatches) {
  ExpectUpdate("wide", reference_.wide_epsilon);
}

INSTANTIATE_TEST_SUITE_P(Cases, ReferenceOptimizerTest, testing::ValuesIn(ReferenceCaseNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace penstock
