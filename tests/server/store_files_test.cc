// Segment files, logs, metric ranges, page tokens, request checks: the small parts under the store.
#include <fstream>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "penstock/internal/worker.pb.h"
#include "server/jobs/metric_store.h"
#include "server/jobs/page_token.h"
#include "server/jobs/request_checks.h"
#include "server/store/log_file.h"
#include "server/store/segment_file.h"
#include "tests/server/test_support.h"

namespace penstock::server {
namespace {

using testing::ElementsAre;

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}
std::vector<std::string> Records(const std::string& path) {
  SegmentReader reader(path);
  std::vector<std::string> records;
  while (true) {
    auto record = reader.Next();
    if (!record.ok() || !*record) return records;
    records.push_back(**std::move(record));
  }
}

TEST(SegmentFileTest, AReaderSeesRecordsAsTheyAreAppended) {
  TestDirectory directory;
  const std::string path = directory.path() + "/m.seg";
  SegmentReader reader(path);
  EXPECT_FALSE(reader.Next()->has_value());
  auto writer = SegmentWriter::Open(path);
  ASSERT_TRUE(writer.ok());
  const std::string large(100'000, 'x');
  for (const std::string& record : {std::string("one"), large}) {
    ASSERT_TRUE(writer->Append(record).ok());
    EXPECT_EQ(**reader.Next(), record);
    EXPECT_FALSE(reader.Next()->has_value());
  }
  EXPECT_FALSE(writer->Append("").ok());
  EXPECT_FALSE(writer->Append(std::string(kMaxSegmentRecordBytes + 1, 'x')).ok());
}

TEST(SegmentFileTest, ATornTailIsCutAtEveryLength) {
  TestDirectory directory;
  const std::string path = directory.path() + "/m.seg";
  {
    auto writer = SegmentWriter::Open(path);
    ASSERT_TRUE(writer->Append("first").ok());
    ASSERT_TRUE(writer->Append("second").ok());
  }
  const std::string whole = ReadBytes(path);
  const size_t first = 8 + 5;
  for (size_t length = 0; length < whole.size(); ++length) {
    WriteBytes(path, whole.substr(0, length));
    EXPECT_EQ(Records(path).size(), length < first ? 0u : 1u);
    auto writer = SegmentWriter::Open(path);
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(writer->cut_bytes(), static_cast<int64_t>(length < first ? length : length - first));
    ASSERT_TRUE(writer->Append("again").ok());
    EXPECT_EQ(Records(path).back(), "again");
  }
}

TEST(SegmentFileTest, NoBitFlipIsTakenForARecord) {
  TestDirectory directory;
  const std::string path = directory.path() + "/m.seg";
  {
    auto writer = SegmentWriter::Open(path);
    ASSERT_TRUE(writer->Append("first").ok());
    ASSERT_TRUE(writer->Append("second").ok());
  }
  const std::string whole = ReadBytes(path);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    WriteBytes(path, flipped);
    const std::vector<std::string> records = Records(path);
    EXPECT_LT(records.size(), 2u) << "bit " << bit;
    if (!records.empty()) {
      EXPECT_EQ(records[0], "first");
    }
  }
}

TEST(LogFileTest, WholeLinesOnlyUntilTheLogIsFinal) {
  TestDirectory directory;
  const std::string path = directory.path() + "/worker.log";
  EXPECT_TRUE(ReadLog(path, 0, 1 << 16, LogTail::kFinal)->lines.empty());
  WriteBytes(path, "one\ntwo\nthr");
  LogBatch batch = *ReadLog(path, 0, 1 << 16, LogTail::kMayGrow);
  EXPECT_THAT(batch.lines, ElementsAre("one", "two"));
  EXPECT_EQ(batch.next_offset, 8u);
  batch = *ReadLog(path, batch.next_offset, 1 << 16, LogTail::kFinal);
  EXPECT_THAT(batch.lines, ElementsAre("thr"));
  EXPECT_EQ(batch.next_offset, 11u);
  EXPECT_TRUE(ReadLog(path, 1000, 1 << 16, LogTail::kFinal)->lines.empty());
}

TEST(LogFileTest, LongLinesAreSplitAndBadBytesReplaced) {
  TestDirectory directory;
  const std::string path = directory.path() + "/worker.log";
  WriteBytes(path, std::string(40'000, 'x') + "\n\xff\xc0\xaf ok \xe2\x82\xac\n");
  std::vector<std::string> lines;
  uint64_t offset = 0;
  while (true) {
    const LogBatch batch = *ReadLog(path, offset, 1000, LogTail::kFinal);
    if (batch.lines.empty()) break;
    lines.insert(lines.end(), batch.lines.begin(), batch.lines.end());
    offset = batch.next_offset;
  }
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].size() + lines[1].size() + lines[2].size(), 40'000u);
  EXPECT_EQ(lines[3], "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD ok \xe2\x82\xac");
  EXPECT_THAT(LastLogLines(path, 1), ElementsAre(lines[3]));
}

void AppendPoint(SegmentWriter& writer, int32_t attempt, int64_t step, bool evaluation = false) {
  internal::WorkerEvent event;
  event.set_number(static_cast<uint64_t>(step));
  event.mutable_metrics()->set_attempt(attempt);
  event.mutable_metrics()->set_step(step);
  if (evaluation) event.mutable_metrics()->mutable_evaluation();
  ASSERT_TRUE(writer.Append(event.SerializeAsString()).ok());
}

TEST(MetricStoreTest, ThinsToTheLastOfEachGroupAndKeepsEvaluations) {
  TestDirectory directory;
  const std::string path = directory.path() + "/m.seg";
  auto writer = SegmentWriter::Open(path);
  for (int64_t step = 1; step <= 100; ++step) AppendPoint(*writer, 1, step);
  AppendPoint(*writer, 1, 33, /*evaluation=*/true);
  const auto points = *ReadMetricRange(path, {.first_step = 0, .last_step = 0, .max_points = 10});
  ASSERT_EQ(points.size(), 11u);
  EXPECT_EQ(points.front().step(), 10);
  EXPECT_EQ(points.front().skipped(), 9);
  EXPECT_EQ(points.back().step(), 100);
  const auto range = *ReadMetricRange(path, {.first_step = 5, .last_step = 7, .max_points = 10});
  ASSERT_EQ(range.size(), 3u);
  EXPECT_EQ(range[0].step(), 5);
}

TEST(MetricStoreTest, OfSeveralAttemptsAtAStepTheNewestCounts) {
  TestDirectory directory;
  const std::string path = directory.path() + "/m.seg";
  auto writer = SegmentWriter::Open(path);
  for (int64_t step = 1; step <= 5; ++step) AppendPoint(*writer, 1, step);
  for (int64_t step = 1; step <= 2; ++step) AppendPoint(*writer, 2, step);
  const auto points = *ReadMetricRange(path, {.first_step = 0, .last_step = 0, .max_points = 10});
  ASSERT_EQ(points.size(), 5u);
  EXPECT_EQ(points[1].attempt(), 2);
  EXPECT_EQ(points[2].attempt(), 1);
  EXPECT_EQ(*LastMetricNumber(path, 1), 5u);
  EXPECT_EQ(*LastMetricNumber(path, 2), 2u);
  EXPECT_EQ(*LastMetricNumber(path, 3), 0u);
}

TEST(PageTokenTest, BelongsToItsFilterAndNoOtherTextIsTaken) {
  const std::string token = MakePageToken("jobs 1", 42);
  EXPECT_EQ(*ParsePageToken(token, "jobs 1", 0), 42);
  EXPECT_EQ(*ParsePageToken("", "jobs 1", 7), 7);
  EXPECT_FALSE(ParsePageToken(token, "jobs 2", 0).ok());
  EXPECT_FALSE(ParsePageToken("42", "jobs 1", 0).ok());
  EXPECT_EQ(*PageSize(0), 100);
  EXPECT_EQ(*PageSize(5000), 1000);
  EXPECT_FALSE(PageSize(-1).ok());
}

TEST(RequestChecksTest, NamesThatCouldLeaveTheirDirectoryAreRefused) {
  for (const std::string& bad :
       {std::string(".."), std::string("../x"), std::string("a/b"), std::string("abc"),
        std::string("1abc"), std::string("abcD"), std::string("abc\n"), std::string(300, 'a'),
        std::string("abc\0d", 5), std::string("")}) {
    EXPECT_FALSE(CheckJobId(bad, "job_id").ok()) << bad;
    EXPECT_FALSE(CheckJobName("jobs/" + bad, "name").ok()) << bad;
    EXPECT_FALSE(ParseCheckpointName("jobs/" + bad + "/checkpoints/1", "name").ok()) << bad;
  }
  EXPECT_TRUE(CheckJobId("abc-1", "job_id").ok());
  EXPECT_EQ(ParseCheckpointName("jobs/abcd/checkpoints/12", "name")->step, 12);
  for (const char* step : {"", "-1", "01", "1/..", "99999999999999999999", " 1"}) {
    EXPECT_FALSE(ParseCheckpointName("jobs/abcd/checkpoints/" + std::string(step), "name").ok());
  }
  EXPECT_FALSE(CheckRequestId(std::string(129, 'a')).ok());
  EXPECT_FALSE(CheckRequestId("a\n").ok());
}

}  // namespace
}  // namespace penstock::server
