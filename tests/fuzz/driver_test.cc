// The driver finds what it is for: a case that breaks a promise, dies, hangs or eats the memory,
// each named by its number, and goes on with the next.
#include "tests/fuzz/driver.h"

#include <csignal>
#include <cstdlib>
#include <thread>

#include "gmock/gmock.h"

namespace penstock::fuzz {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ScriptedTarget final : public Target {
 public:
  absl::StatusOr<Outcome> RunCase(Random& /*random*/) override {
    switch (number_++) {
      case 1:
        return Violation("two and two are five", "in\xff");
      case 2:
        std::raise(SIGKILL);
        break;
      case 3:
        std::_Exit(9);
      case 4:
        for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
      case 5:
        for (std::vector<char> memory;;) memory.resize(memory.size() + (1 << 20), 'x');
      default:
        break;
    }
    return number_ % 2 == 0 ? Outcome::kAccepted : Outcome::kRefused;
  }

  // Every process makes its targets anew; the number of cases before is what they are told.
  static inline int64_t first_case = 0;

 private:
  int64_t number_ = first_case;
};

// One run a case, as the driver's processes do not hand on the target's count.
RunResult RunOne(int64_t number) {
  ScriptedTarget::first_case = number;
  const TargetFactory factory = {"scripted", [](const std::string&) -> std::unique_ptr<Target> {
                                   return std::make_unique<ScriptedTarget>();
                                 }};
  return Fuzz(factory, {.testdata = "",
                        .seed = 5,
                        .first_case = number,
                        .cases = 1,
                        .max_case_seconds = number == 4 ? 0.5 : 60,
                        .max_memory_bytes = int64_t{1} << 30});
}

TEST(FuzzDriverTest, FindsWhatGoesWrong) {
  const std::vector<std::string> wanted = {"two and two are five; input of 3 bytes: \"in\\xff\"",
                                           "signal 9", "status 9", "more than 0.5 s",
                                           "more than 1073741824 bytes"};
  for (int64_t number = 1; number <= 5; ++number) {
    const RunResult result = RunOne(number);
    ASSERT_THAT(result.findings, SizeIs(1));
    EXPECT_EQ(result.findings[0].seed, 5);
    EXPECT_EQ(result.findings[0].case_number, number);
    EXPECT_THAT(result.findings[0].what, HasSubstr(wanted[number - 1]));
    EXPECT_EQ(result.cases, 1);
  }
}

TEST(FuzzDriverTest, CountsWhatGoesWell) {
  const RunResult result = RunOne(7);
  EXPECT_THAT(result.findings, IsEmpty());
  EXPECT_EQ(result.cases, 1);
  EXPECT_EQ(result.accepted, 1);
}

class RandomTarget final : public Target {
 public:
  absl::StatusOr<Outcome> RunCase(Random& random) override {
    if (random.OneIn(50)) return Violation(std::to_string(random.Below(1 << 30)), "");
    return Outcome::kAccepted;
  }
};

TEST(FuzzDriverTest, AFindingIsFoundAgainByItsNumberAlone) {
  const TargetFactory factory = {"random", [](const std::string&) -> std::unique_ptr<Target> {
                                   return std::make_unique<RandomTarget>();
                                 }};
  const RunResult all = Fuzz(factory, {.testdata = "", .seed = 3, .cases = 100'000});
  ASSERT_THAT(all.findings, SizeIs(kMaxFindings));
  for (const Finding& finding : all.findings) {
    const RunResult again =
        Fuzz(factory,
             {.testdata = "", .seed = finding.seed, .first_case = finding.case_number, .cases = 1});
    EXPECT_THAT(again.findings, ElementsAre(Field(&Finding::what, finding.what)));
  }
}

}  // namespace
}  // namespace penstock::fuzz
