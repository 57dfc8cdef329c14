// What the command line shows on terminals: plots, the page of `top`, and where names of daemons
// lie.
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/contexts.h"
#include "client/loss_plot.h"
#include "client/output.h"
#include "client/top_text.h"
#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace penstock::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Points = google::protobuf::RepeatedPtrField<v1::StepMetrics>;

void AddStep(Points& points, int64_t step, double loss) {
  v1::StepMetrics& point = *points.Add();
  point.set_step(step);
  point.set_loss(loss);
  point.set_outcome(v1::STEP_OUTCOME_APPLIED);
}

TEST(LossPlotTest, DrawsALineThatFalls) {
  Points points;
  for (int i = 0; i <= 18; ++i) AddStep(points, i + 1, 9.0 - 0.5 * i);
  EXPECT_EQ(LossPlot(points, {.width = 31, .height = 4}),
            "    9.0000 |****\n"
            "           |   *******\n"
            "    3.0000 |         *******\n"
            "    0.0000 |               ****\n"
            "            step 1           19\n");
}

TEST(LossPlotTest, BrailleHasEightDotsACharacter) {
  Points points;
  AddStep(points, 1, 1.0);
  AddStep(points, 2, 1.0);
  const std::string flat =
      LossPlot(points, {.width = 31, .height = 5, .dots = PlotStyle::Dots::kBraille});
  // One row of dots over the whole width, in the middle.
  const std::vector<std::string> lines = absl::StrSplit(flat, '\n');
  EXPECT_EQ(lines.size(), 7u);
  EXPECT_THAT(flat, AllOf(HasSubstr("\u2502"), Not(HasSubstr("*"))));
  EXPECT_THAT(lines[2], testing::MatchesRegex(".*[^ ]{19,}"));
  EXPECT_EQ(lines[0].find("\xE2\xA0"), std::string::npos);
}

TEST(LossPlotTest, EvaluationsAreMarksAndGreenOnlyWithColor) {
  Points points;
  AddStep(points, 1, 2.0);
  AddStep(points, 10, 1.0);
  v1::StepMetrics& point = *points.Add();
  point.set_step(10);
  point.mutable_evaluation()->set_loss(1.5);
  const std::string plain = LossPlot(points, {.width = 40, .height = 5});
  EXPECT_THAT(plain, AllOf(HasSubstr("o evaluation"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(LossPlot(points, {.width = 40, .height = 5, .color = true}),
              HasSubstr("\x1b[32mo\x1b[0m"));
}

TEST(LossPlotTest, WhatCannotBeDrawnIsLeftOut) {
  Points points;
  EXPECT_EQ(LossPlot(points, {}), "no losses to plot yet\n");
  AddStep(points, 1, std::numeric_limits<double>::quiet_NaN());
  AddStep(points, 2, HUGE_VAL);
  AddStep(points, 2, std::numeric_limits<double>::max());
  AddStep(points, 2, -std::numeric_limits<double>::max());
  EXPECT_EQ(LossPlot(points, {}), "no losses to plot yet\n");
  AddStep(points, 3, 0.0);
  EXPECT_THAT(LossPlot(points, {.width = 1, .height = -5}), HasSubstr("step 3"));
  AddStep(points, 4, 1e99);
  AddStep(points, 5, -1e99);
  EXPECT_THAT(LossPlot(points, {.dots = PlotStyle::Dots::kBraille}), HasSubstr("step 3"));
}

TEST(CutToWidthTest, CutsBetweenCharacters) {
  EXPECT_EQ(CutToWidth("abc", 3), "abc");
  EXPECT_EQ(CutToWidth("abcd", 3), "abc");
  EXPECT_EQ(CutToWidth("a\u00e9\u4e2db", 3), "a\u00e9\u4e2d");
  EXPECT_EQ(CutToWidth("abc", 0), "");
  EXPECT_EQ(CutToWidth("abc", -1), "abc");
}

TEST(TopPageTest, RunningJobsComeFirstThenTheQueueInItsOrder) {
  TopReading reading;
  reading.info.set_version("0.1.0");
  reading.info.set_status(v1::SERVER_STATUS_SERVING);
  reading.info.set_running_jobs(1);
  reading.info.set_queued_jobs(2);
  v1::Device& device = *reading.devices.add_devices();
  device.set_id("GPU-1");
  device.set_health(v1::DEVICE_HEALTH_HEALTHY);
  device.set_memory_bytes(int64_t{80} << 30);
  device.set_job("jobs/runs");
  device.mutable_reading()->set_utilization(0.97);
  device.mutable_reading()->set_memory_used_bytes(int64_t{61} << 30);
  device.mutable_reading()->set_power_watts(655);
  const auto add = [&](const char* name, v1::JobState state, int64_t position) -> v1::Job& {
    v1::Job& job = *reading.jobs.add_jobs();
    job.set_name(absl::StrCat("jobs/", name));
    job.set_state(state);
    job.set_queue_position(position);
    return job;
  };
  add("paused", v1::JOB_STATE_PAUSED, 0);
  add("second", v1::JOB_STATE_QUEUED, 2).set_state_message("waits for\x1b[31m the device");
  add("first", v1::JOB_STATE_QUEUED, 1);
  v1::JobProgress& progress = *add("runs", v1::JOB_STATE_RUNNING, 0).mutable_progress();
  progress.set_step(50);
  progress.set_total_steps(200);
  progress.set_loss(3.25);
  progress.set_tokens_per_second(1234);
  progress.set_remaining_seconds(187);
  const std::string page = TopPage("unix:/s", reading);
  EXPECT_THAT(page, AllOf(HasSubstr("penstockd 0.1.0 at unix:/s, serving"),
                          HasSubstr("1 running, 2 queued"), HasSubstr("97%"),
                          HasSubstr("61.0 GiB of 80.0 GiB"), HasSubstr("655 W"),
                          HasSubstr("[##........] 50/200"), HasSubstr("3.2500"), HasSubstr("1.2k"),
                          HasSubstr("3m07s"), HasSubstr("waits for?[31m")));
  EXPECT_THAT(page, Not(HasSubstr("\x1b")));
  size_t place = page.find("JOB  ");
  for (const char* name : {"runs", "first", "second", "paused"}) {
    const size_t next = page.find(absl::StrCat("\n", name), place);
    ASSERT_NE(next, std::string::npos) << name << "\n" << page;
    place = next;
  }
}

class ContextsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/penstock-contexts-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    environment_ = [this](const std::string& name) -> std::optional<std::string> {
      if (name == "XDG_CONFIG_HOME") return directory_ + "/config";
      if (name == "HOME") return "/home/u";
      return std::nullopt;
    };
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
  GetEnvironment environment_;
};

TEST_F(ContextsTest, AreReadAsTheyWereWrittenAndNobodyElseReadsThem) {
  const std::string path = ContextsPath(environment_);
  EXPECT_EQ(path, directory_ + "/config/penstock/contexts.json");
  ASSERT_TRUE(ReadContexts(path).ok());
  EXPECT_TRUE(ReadContexts(path)->endpoints.empty());
  const Contexts contexts{.current = "lab",
                          .endpoints = {{"lab", "lab.example:7070"}, {"here", "/run/p.sock"}}};
  umask(0);
  ASSERT_TRUE(WriteContexts(path, contexts).ok());
  ASSERT_TRUE(WriteContexts(path, contexts).ok());
  const absl::StatusOr<Contexts> read = ReadContexts(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->current, "lab");
  EXPECT_EQ(read->endpoints, contexts.endpoints);
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_ + "/config/penstock")) {
    ++files;
    EXPECT_EQ(entry.path().string(), path);
  }
  EXPECT_EQ(files, 1);
}

TEST_F(ContextsTest, TheOneInUseIsTheEndpointUnlessTheEnvironmentNamesOne) {
  ASSERT_TRUE(WriteContexts(ContextsPath(environment_),
                            {.current = "lab", .endpoints = {{"lab", "lab.example:7070"}}})
                  .ok());
  EXPECT_EQ(FindEndpoint("", environment_)->target, "lab.example:7070");
  EXPECT_EQ(FindEndpoint("", environment_)->source, "context lab");
  EXPECT_EQ(FindEndpoint("/flag.sock", environment_)->target, "unix:/flag.sock");
  const auto named = [&](const std::string& name) -> std::optional<std::string> {
    if (name == "PENSTOCK_ENDPOINT") return "127.0.0.1:1";
    return environment_(name);
  };
  EXPECT_EQ(FindEndpoint("", named)->target, "127.0.0.1:1");
  ASSERT_TRUE(WriteContexts(ContextsPath(environment_), {}).ok());
  EXPECT_EQ(FindEndpoint("", environment_)->target,
            "unix:/home/u/.local/state/penstock/penstock.sock");
}

TEST_F(ContextsTest, OtherFilesAreRefusedByName) {
  const std::string path = directory_ + "/contexts.json";
  for (const char* text :
       {"", "[]", "{}", R"({"current": 3, "contexts": {}})", R"({"current": "", "contexts": []})",
        R"({"current": "x", "contexts": {}})", R"({"current": "", "contexts": {"a": "b"}})",
        R"({"current": "", "contexts": {"a/b": {"endpoint": "/s"}}})"}) {
    std::ofstream(path) << text;
    const absl::StatusOr<Contexts> read = ReadContexts(path);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(path));
    EXPECT_EQ(ReasonOf(read.status()), reason::kRequestInvalid);
  }
}

}  // namespace
}  // namespace penstock::client
