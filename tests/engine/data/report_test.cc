#include "engine/data/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/engine/data/data_test_util.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

DataReport ReportOf(const TempDir& dir, const std::string& rows, BadRowPolicy policy) {
  DataSource source = JsonlSource({dir.Write("rows.jsonl", rows)});
  source.on_bad_row = policy;
  const auto stream = Must(BatchStream::Create({.dataset = Dataset::All(Must(OpenIn(dir, source))),
                                                .sequence_length = 4,
                                                .rows_per_micro_batch = 2,
                                                .micro_batches_per_step = 1}));
  return MakeDataReport(*stream);
}

TEST(DataReportTest, CountsAndNamesWhatHasNoEffect) {
  TempDir dir;
  const DataReport report = ReportOf(dir,
                                     "[1,2,3,4,5,6]\n"
                                     "[7]\n"
                                     "bad\n"
                                     "{\"ids\":[8,9],\"labels\":[8,-100]}\n"
                                     "[10,11]\n",
                                     BadRowPolicy::kSkip);
  EXPECT_EQ(report.documents, 4);
  EXPECT_EQ(report.tokens, 11);
  EXPECT_EQ(report.labelled_tokens, 6);
  EXPECT_EQ(report.windows, 5);
  EXPECT_EQ(report.rows_per_epoch, 3);
  EXPECT_EQ(report.rows_per_step, 2);
  EXPECT_EQ(report.steps_per_epoch, 2);
  EXPECT_DOUBLE_EQ(report.padding_fraction, 1.0 / 12);
  EXPECT_EQ(report.one_token_documents, 1);
  EXPECT_EQ(report.unlabelled_documents, 2);
  ASSERT_THAT(report.unlabelled, SizeIs(2));
  EXPECT_THAT(report.unlabelled[0].location, HasSubstr("rows.jsonl:2"));
  EXPECT_THAT(report.unlabelled[1].location, HasSubstr("rows.jsonl:4"));
  EXPECT_EQ(report.Of(NoteKind::kBadRow).count, 1);
  ASSERT_THAT(report.Of(NoteKind::kBadRow).listed, SizeIs(1));

  const std::string text = ToText(report);
  for (const char* part :
       {"4 documents, 11 tokens, 6 labels", "5 windows in 3 rows per epoch, 8.33% padding",
        "2 rows per step, 2 steps per epoch", "2 documents, 1 of them of one token",
        "rows.jsonl:2: one token", "rows.jsonl:4: every label is -100",
        "left out because they are broken: 1\n", "rows.jsonl:3:1: found 'b'"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(DataReportTest, SaysNothingOfWhatIsNotThere) {
  TempDir dir;
  const std::string text = ToText(ReportOf(dir, "[1,2,3,4]\n", BadRowPolicy::kRefuse));
  EXPECT_THAT(text, HasSubstr("0.00% padding"));
  EXPECT_THAT(text, Not(HasSubstr("left out")));
  EXPECT_THAT(text, Not(HasSubstr("without any label")));
}

TEST(DataReportTest, DatasetsOfAMixtureAreToldApart) {
  TempDir dir;
  std::vector<Dataset::Part> parts = {
      Dataset::Whole(CacheOfRows(dir, {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11}})),
      Dataset::Whole(CacheOfRows(dir, {{21, 22, 23, 24}}))};
  parts[0].name = "poems";
  parts[1].name = "maps";
  parts[1].weight = 3;
  const auto stream =
      Must(BatchStream::Create({.dataset = std::make_shared<const Dataset>(std::move(parts)),
                                .sequence_length = 4,
                                .rows_per_micro_batch = 2,
                                .micro_batches_per_step = 1}));
  const DataReport report = MakeDataReport(*stream);
  EXPECT_EQ(report.rows_per_epoch, 6);
  EXPECT_DOUBLE_EQ(report.padding_fraction, 1.0 / 16);
  const std::string text = ToText(report);
  EXPECT_THAT(text, HasSubstr("dataset poems: 3 documents, 11 tokens; weight 1: 3 of its 3 rows in "
                              "every epoch, 50.0% of the epoch"));
  EXPECT_THAT(text, HasSubstr("dataset maps: 1 documents, 4 tokens; weight 3: 3 of its 1 rows"));
}

TEST(DataReportTest, LongListsAreCappedAndSaySo) {
  TempDir dir;
  std::string rows = "[1,2]\n";
  for (int i = 0; i < 50; ++i) rows += "[3]\n";
  const DataReport report = ReportOf(dir, rows, BadRowPolicy::kRefuse);
  EXPECT_EQ(report.unlabelled_documents, 50);
  EXPECT_THAT(report.unlabelled, SizeIs(DataReport::kMaxUnlabelledListed));
  EXPECT_THAT(ToText(report), HasSubstr("and 30 more"));
}

}  // namespace
}  // namespace penstock
