#include "bench/flags.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace penstock {
namespace {

using testing::HasSubstr;

struct Values {
  std::string name;
  int64_t steps = 4;
  double rate = 0.5;
  bool dry = false;
};

absl::Status Parse(const std::vector<std::string>& words, Values& values) {
  std::vector<std::string> owned = {"program"};
  owned.insert(owned.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : owned) argv.push_back(word.data());
  return ParseFlags(static_cast<int>(argv.size()), argv.data(),
                    {.texts = {{"name", &values.name}},
                     .numbers = {{"steps", &values.steps}},
                     .reals = {{"rate", &values.rate}},
                     .switches = {{"dry", &values.dry}}});
}

TEST(FlagsTest, AssignsEveryKindAndLeavesTheRest) {
  Values values;
  ASSERT_TRUE(Parse({"--name=a=b", "--rate=2e-4", "--dry"}, values).ok());
  EXPECT_EQ(values.name, "a=b");
  EXPECT_EQ(values.rate, 2e-4);
  EXPECT_TRUE(values.dry);
  EXPECT_EQ(values.steps, 4);
}

TEST(FlagsTest, NamesTheWordThatCannotBeUsed) {
  for (const char* word : {"--steps=-1", "--steps=16777217", "--steps=1e3", "--steps=", "--steps",
                           "--rate=-1", "--rate=nan", "--rate=inf", "--rate=x", "--dry=1", "--name",
                           "--other=1", "steps=1", "-steps=1", "--", ""}) {
    Values values;
    const absl::Status status = Parse({"--steps=7", word}, values);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << word;
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

}  // namespace
}  // namespace penstock
