// A job's metrics as JSON lines and as TensorBoard's event files; metric_files_test.py reads what a
// daemon writes with a reader of its own.
#include "server/metric_files/metric_files.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "penstock/internal/worker.pb.h"
#include "server/metric_files/tensorboard_events.h"
#include "server/store/segment_file.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/test_support.h"

namespace penstock::server {
namespace {

namespace fs = std::filesystem;

std::string ReadAllOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

v1::StepMetrics Point(int32_t attempt, int64_t step) {
  v1::StepMetrics point;
  point.set_attempt(attempt);
  point.set_step(step);
  point.set_loss(1.0 / static_cast<double>(step));
  point.mutable_time()->set_seconds(1'000'000 + 1000 * attempt + step);
  return point;
}

class JobMetricFilesTest : public testing::Test {
 protected:
  JobMetricFilesTest() {
    auto writer = SegmentWriter::Open(directory_.path() + "/metrics.seg");
    EXPECT_TRUE(writer.ok()) << writer.status();
    writer_.emplace(*std::move(writer));
  }
  void Store(int32_t attempt, int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      internal::WorkerEvent event;
      *event.mutable_metrics() = Point(attempt, step);
      ASSERT_TRUE(writer_->Append(event.SerializeAsString()).ok());
    }
  }
  // Opens the copies anew and copies all.
  void Copy() {
    auto files = JobMetricFiles::Open(directory_.path());
    ASSERT_TRUE(files.ok()) << files.status();
    while (true) {
      const auto more = files->CopyNew(3);
      ASSERT_TRUE(more.ok()) << more.status();
      if (!*more) return;
    }
  }
  std::string lines() const { return directory_.path() + "/metrics.jsonl"; }
  std::vector<std::string> events() const {
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(directory_.path() + "/tensorboard")) {
      paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  TestDirectory directory_;
  std::optional<SegmentWriter> writer_;
};

TEST_F(JobMetricFilesTest, EachAttemptHasAFileThatSaysFromWhichStepItCounts) {
  Store(1, 1, 5);
  Store(2, 4, 7);
  Copy();
  std::vector<std::string> steps;
  for (const absl::string_view line : absl::StrSplit(ReadAllOf(lines()), '\n', absl::SkipEmpty())) {
    v1::StepMetrics point;
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(std::string(line), &point).ok());
    steps.push_back(absl::StrCat(point.attempt(), ":", point.step()));
  }
  EXPECT_EQ(steps, (std::vector<std::string>{"1:1", "1:2", "1:3", "1:4", "1:5", "2:4", "2:5", "2:6",
                                             "2:7"}));
  ASSERT_EQ(events().size(), 2u);
  EXPECT_EQ(fs::path(events()[0]).filename(), "events.out.tfevents.0001001001.penstock.0001");
  const std::string second = ReadAllOf(events()[1]);
  std::string expected = EventFileHead(Point(2, 4));
  for (int64_t step = 4; step <= 7; ++step) expected += EventOf(Point(2, step));
  EXPECT_EQ(second, expected);
}

// Whatever a crash left, at every byte: the copies end as if nothing had happened.
TEST_F(JobMetricFilesTest, TornTailsAreCutAndWrittenAgain) {
  Store(1, 1, 2);
  Store(2, 2, 3);
  Copy();
  const std::string whole_lines = ReadAllOf(lines());
  const std::string last = events()[1];
  const std::string whole_events = ReadAllOf(last);
  const auto tear = [](const std::string& path, const std::string& whole, size_t keep) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, keep);
  };
  for (size_t keep = 0; keep < whole_lines.size(); keep += 7) {
    tear(lines(), whole_lines, keep);
    Copy();
    ASSERT_EQ(ReadAllOf(lines()), whole_lines) << keep;
  }
  for (size_t keep = 0; keep < whole_events.size(); ++keep) {
    tear(last, whole_events, keep);
    Copy();
    ASSERT_EQ(ReadAllOf(last), whole_events) << keep;
  }
  std::string flipped = whole_events;
  flipped[flipped.size() - 20] ^= 1;
  tear(last, flipped, flipped.size());
  Copy();
  EXPECT_EQ(ReadAllOf(last), whole_events);
  Store(2, 4, 4);
  Copy();
  EXPECT_EQ(ReadAllOf(last), whole_events + EventOf(Point(2, 4)));
}

using MetricFilesDaemonTest = DaemonTest;

TEST_F(MetricFilesDaemonTest, AJobThatDiedAndADaemonThatWasStartedAgainLeaveWholeCopies) {
  Start();
  const std::string name = client_->Submit(
      {{"steps", "60"}, {"step_ms", "5"}, {"crash_at", "20"}, {"crash_attempts", "1"}},
      /*max_attempts=*/3);
  client_->WaitFor(name, [](const v1::Job& job) { return job.attempt() == 2; });
  Restart();
  client_->WaitForEnd(name);
  daemon_.reset();  // copies what is left
  const std::string job = directory_.state() + "/" + name;
  const std::string text = ReadAllOf(job + "/metrics.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 19 + 60);
  int64_t records = 0;
  int files = 0;
  for (const auto& entry : fs::directory_iterator(job + "/tensorboard")) {
    const auto whole = CountTfRecords(entry.path().string());
    ASSERT_TRUE(whole.ok());
    EXPECT_EQ(whole->bytes, static_cast<int64_t>(fs::file_size(entry.path())));
    records += whole->count;
    ++files;
  }
  EXPECT_EQ(files, 2);
  EXPECT_EQ(records, 2 * 2 + 19 + 60);
  EXPECT_EQ(fs::status(job + "/metrics.jsonl").permissions(), fs::perms{0600});
}

}  // namespace
}  // namespace penstock::server
