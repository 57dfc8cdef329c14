// A sweep's grid written out, and what is refused of it.
#include "server/jobs/sweep_points.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace penstock::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;

v1::SweepSpec Sweep(const std::vector<std::pair<std::string, std::vector<std::string>>>& axes) {
  v1::SweepSpec sweep;
  sweep.mutable_job()->mutable_batch()->set_sequence_length(8);
  for (const auto& [field, values] : axes) {
    v1::SweepAxis& axis = *sweep.add_axes();
    axis.set_field(field);
    for (const std::string& value : values) axis.add_values(value);
  }
  return sweep;
}

TEST(SweepPointsTest, TheLastAxisChangesFastestAndTheRestStays) {
  const auto jobs = ExpandSweep(Sweep({{"optimizer.learning_rate", {"1e-5", "3e-5"}},
                                       {"schedule.kind", {"linear", "cosine"}},
                                       {"labels", {"{\"a\": \"b\"}"}}}));
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  ASSERT_EQ(jobs->size(), 4u);
  const double rates[] = {1e-5, 1e-5, 3e-5, 3e-5};
  for (size_t i = 0; i < 4; ++i) {
    const SweepJobSpec& job = (*jobs)[i];
    EXPECT_EQ(job.spec.optimizer().learning_rate(), rates[i]);
    EXPECT_EQ(job.spec.schedule().kind(),
              i % 2 == 0 ? v1::SCHEDULE_KIND_LINEAR : v1::SCHEDULE_KIND_COSINE);
    EXPECT_EQ(job.spec.labels().at("a"), "b");
    EXPECT_EQ(job.spec.batch().sequence_length(), 8);
    EXPECT_EQ(job.point.number(), static_cast<int32_t>(i + 1));
  }
  EXPECT_EQ(PointText((*jobs)[2].point),
            "optimizer.learning_rate=3e-5, schedule.kind=linear, labels={\"a\": \"b\"}");
}

TEST(SweepPointsTest, EachJobExportsToItsOwnDirectory) {
  v1::SweepSpec sweep = Sweep({{"seed", {"1", "2"}}});
  sweep.mutable_job()->mutable_output()->set_directory("/models/out/");
  EXPECT_EQ((*ExpandSweep(sweep))[1].spec.output().directory(), "/models/out-002");
  sweep = Sweep({{"output.directory", {"/models/x", "/models/y"}}});
  EXPECT_EQ((*ExpandSweep(sweep))[1].spec.output().directory(), "/models/y");
}

struct Refusal {
  v1::SweepSpec sweep;
  std::string says;
};

TEST(SweepPointsTest, RefusesWhatIsNoGridNamingAxisAndField) {
  std::vector<std::string> many;
  for (int i = 0; i < 257; ++i) many.push_back(absl::StrCat(i));
  std::vector<std::string> some(many.begin(), many.begin() + 17);
  v1::SweepSpec large = Sweep({{"seed", some}});
  large.mutable_job()->mutable_model()->mutable_random()->set_config_json(
      std::string(2 << 20, ' '));
  v1::SweepSpec wide;
  for (int i = 0; i < 17; ++i) wide.add_axes()->set_field(absl::StrCat("f", i));
  for (const Refusal& one : {
           Refusal{Sweep({}), "axes: found 0"},
           Refusal{wide, "axes: found 17"},
           Refusal{Sweep({{"", {"1"}}}), "axes[0].field: is empty"},
           Refusal{Sweep({{"seed", {}}}), "axes[0].values: has no value for seed"},
           Refusal{Sweep({{"seed", many}}), "more than 256 jobs"},
           Refusal{Sweep({{"seed", some}, {"batch.tokens_per_step", some}}), "more than 256 jobs"},
           Refusal{large, "expected at most 33554432"},
           Refusal{Sweep({{"seed", {"1"}}, {"seed", {"2"}}}), "axes[1].field: found seed"},
           Refusal{Sweep({{"optimizer.beta1", {"0.9"}}, {"optimizer", {"{}"}}}),
                   "axes[1].field: found optimizer"},
           Refusal{Sweep({{"seed", {"7", "007"}}}), "axes[0].values[1]"},
           Refusal{Sweep({{"seed", {"7", "7.0"}}}), "jobs 1 and 2 (seed=7.0) would be the same"},
           Refusal{Sweep({{"optimiser.beta1", {"1"}}}), "optimizer"},
           Refusal{Sweep({{"optimizer.learning_rate", {"1e-5", "fast"}}}), "axes[0].values[1]"},
           Refusal{Sweep({{"seed", {"[1]"}}}), "axes[0].values[0]"},
           Refusal{Sweep({{"a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a",
                           {"1"}}}),
                   "a path of"},
       }) {
    const absl::Status status = ExpandSweep(one.sweep).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << one.says;
    EXPECT_EQ(ReasonOf(status), reason::kSpecInvalid);
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.says));
  }
  const absl::Status status =
      ExpandSweep(Sweep({{"optimizer.learning_rate", {"1e-5", "fast"}}})).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("optimizer.learning_rate"), HasSubstr("fast")));
  EXPECT_EQ(MetadataOf(status)["field"], "optimizer.learning_rate");
  EXPECT_EQ(MetadataOf(status)["file"], "axes[0].values[1]");
}

TEST(SweepPointsTest, LongValuesAreCutWhereTheyAreShown) {
  v1::SweepPoint point;
  v1::SweepValue& value = *point.add_values();
  value.set_field("display_name");
  for (int i = 0; i < 1000; ++i) value.mutable_value()->append("é");
  EXPECT_LT(PointText(point).size(), 220u);
}

}  // namespace
}  // namespace penstock::server
