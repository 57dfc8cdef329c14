#include "engine/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/data/data_test_util.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::vector<int32_t>> RowsOf(const Dataset& dataset) {
  std::vector<std::vector<int32_t>> rows;
  for (int64_t d = 0; d < dataset.documents(); ++d) {
    rows.emplace_back(dataset.Ids(d).begin(), dataset.Ids(d).end());
  }
  return rows;
}

TEST(DatasetTest, EveryTokenButTheFirstIsALabelOnce) {
  TempDir dir;
  const auto dataset = Dataset::All(CacheOfRows(dir, {{1, 2, 3}, {4}, {5, 6}}));
  EXPECT_EQ(dataset->documents(), 3);
  EXPECT_EQ(dataset->tokens(), 6);
  EXPECT_EQ(dataset->labelled_tokens(), 3);
  EXPECT_TRUE(dataset->HasLabel(0, 0));
  EXPECT_TRUE(dataset->HasLabel(0, 1));
  EXPECT_FALSE(dataset->HasLabel(0, 2));
  EXPECT_FALSE(dataset->HasLabel(1, 0));
  EXPECT_EQ(dataset->LabelledTokens(0, 0, 2), 2);  // a window that does not end the document
  EXPECT_EQ(dataset->LabelledTokens(0, 2, 1), 0);
}

TEST(DatasetTest, MaskedTokensAreNoLabels) {
  TempDir dir;
  const auto cache = Must(
      OpenIn(dir, JsonlSource({dir.Write("r", R"({"ids":[7,8,9,10],"labels":[7,-100,9,-100]})")})));
  const auto dataset = Dataset::All(cache);
  EXPECT_EQ(dataset->labelled_tokens(), 1);  // 9; nothing predicts 7
  EXPECT_FALSE(dataset->HasLabel(0, 0));
  EXPECT_TRUE(dataset->HasLabel(0, 1));
  EXPECT_FALSE(dataset->HasLabel(0, 2));
}

class HoldOutTest : public testing::Test {
 protected:
  DatasetSplit Split(int64_t documents, double fraction, uint64_t seed = 1) {
    rows_ = RowsOfLengths(std::vector<int64_t>(documents, 3));
    return Must(HoldOut({Dataset::Whole(CacheOfRows(dir_, rows_))}, {.fraction = fraction}, seed));
  }
  TempDir dir_;
  std::vector<std::vector<int32_t>> rows_;
};

TEST_F(HoldOutTest, PartsAreDisjointAndComplete) {
  for (const double fraction : {1e-9, 0.1, 0.5, 0.9, 1 - 1e-9}) {
    for (const int64_t documents : {2, 3, 10, 500}) {
      const DatasetSplit split = Split(documents, fraction);
      EXPECT_GE(split.train->documents(), 1);
      EXPECT_GE(split.held_out->documents(), 1);
      std::multiset<std::vector<int32_t>> all;
      for (const auto& row : RowsOf(*split.train)) all.insert(row);
      for (const auto& row : RowsOf(*split.held_out)) all.insert(row);
      EXPECT_EQ(all, (std::multiset<std::vector<int32_t>>(rows_.begin(), rows_.end())));
    }
  }
}

TEST_F(HoldOutTest, ShareIsAboutTheFraction) {
  const DatasetSplit split = Split(5000, 0.1);
  EXPECT_GT(split.held_out->documents(), 400);
  EXPECT_LT(split.held_out->documents(), 600);
}

TEST_F(HoldOutTest, IsAFunctionOfTheSeed) {
  const auto first = RowsOf(*Split(100, 0.2, 5).held_out);
  EXPECT_EQ(first, RowsOf(*Split(100, 0.2, 5).held_out));
  EXPECT_NE(first, RowsOf(*Split(100, 0.2, 6).held_out));
}

TEST_F(HoldOutTest, SingleDocumentGivesItsLastTokens) {
  const auto cache = CacheOfRows(dir_, RowsOfLengths({10}));
  const DatasetSplit split = Must(HoldOut({Dataset::Whole(cache)}, {.fraction = 0.3}, 1));
  EXPECT_THAT(RowsOf(*split.train)[0], ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(RowsOf(*split.held_out)[0], ElementsAre(7, 8, 9));
  EXPECT_EQ(split.train->labelled_tokens(), 6);  // 7 is no label of the training part
  EXPECT_EQ(split.held_out->labelled_tokens(), 2);
}

TEST_F(HoldOutTest, SingleDocumentKeepsALabelOnBothSides) {
  for (const double fraction : {0.001, 0.999}) {
    const DatasetSplit split = Must(HoldOut({Dataset::Whole(CacheOfRows(dir_, RowsOfLengths({4})))},
                                            {.fraction = fraction}, 1));
    EXPECT_EQ(split.train->tokens(), 2);
    EXPECT_EQ(split.held_out->tokens(), 2);
  }
  const absl::Status status =
      HoldOut({Dataset::Whole(CacheOfRows(dir_, RowsOfLengths({3})))}, {.fraction = 0.1}, 1)
          .status();
  EXPECT_EQ(ReasonOf(status), reason::kDataInvalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("one document of 3 token(s)"));
}

TEST_F(HoldOutTest, PartWithoutLabelsIsRefused) {
  const auto cache = CacheOfRows(dir_, {{1}, {2}, {3}});
  EXPECT_EQ(ReasonOf(HoldOut({Dataset::Whole(cache)}, {.fraction = 0.5}, 1).status()),
            reason::kDataInvalid);
}

TEST_F(HoldOutTest, EveryPartGivesAShare) {
  std::vector<Dataset::Part> parts = {
      Dataset::Whole(CacheOfRows(dir_, RowsOfLengths(std::vector<int64_t>(50, 3)))),
      Dataset::Whole(CacheOfRows(dir_, {{901, 902, 903}, {904, 905, 906}})),
      Dataset::Whole(CacheOfRows(dir_, {{801, 802, 803, 804, 805, 806}}))};
  const DatasetSplit split = Must(HoldOut(parts, {.fraction = 0.2}, 3));
  ASSERT_EQ(split.train->parts().size(), 3u);
  ASSERT_EQ(split.held_out->parts().size(), 3u);
  EXPECT_EQ(split.held_out->parts()[1].documents.size(), 1u);
  EXPECT_THAT(RowsOf(*split.held_out).back(), ElementsAre(805, 806));
  EXPECT_EQ(split.train->tokens() + split.held_out->tokens(), 162);
  EXPECT_EQ(split.train->FirstDocument(2), split.train->documents() - 1);
}

TEST_F(HoldOutTest, ANumberOfDocumentsIsExact) {
  const auto cache = CacheOfRows(dir_, RowsOfLengths(std::vector<int64_t>(20, 3)));
  std::set<std::vector<int32_t>> before;
  for (const int64_t wanted : {1, 2, 7, 19}) {
    const DatasetSplit split = Must(HoldOut({Dataset::Whole(cache)}, {.documents = wanted}, 4));
    EXPECT_EQ(split.held_out->documents(), wanted);
    EXPECT_EQ(split.train->documents(), 20 - wanted);
    std::set<std::vector<int32_t>> held_out, all;
    for (const auto& row : RowsOf(*split.held_out)) held_out.insert(row);
    all = held_out;
    for (const auto& row : RowsOf(*split.train)) all.insert(row);
    EXPECT_EQ(all.size(), 20u);
    // Asking for more keeps what was held out.
    EXPECT_TRUE(std::includes(held_out.begin(), held_out.end(), before.begin(), before.end()));
    before = held_out;
  }
}

TEST_F(HoldOutTest, ANumberThatLeavesNothingToTrainOnIsRefusedByDataset) {
  std::vector<Dataset::Part> parts = {
      Dataset::Whole(CacheOfRows(dir_, RowsOfLengths(std::vector<int64_t>(50, 3)))),
      Dataset::Whole(CacheOfRows(dir_, RowsOfLengths({3, 3})))};
  parts[0].name = "large";
  parts[1].name = "small";
  const absl::Status status = HoldOut(parts, {.documents = 2}, 1).status();
  EXPECT_EQ(ReasonOf(status), reason::kDataInvalid);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("validation_documents is 2, and dataset small has 2 document(s)"));
}

class OpenJobDataTest : public testing::Test {
 protected:
  JobDataArgs Args(const std::string& rows) {
    return {.train = {{.source = JsonlSource({dir_.Write("train.jsonl", rows)})}},
            .embedding_rows = 100,
            .encoder = &ByteEncoder(),
            .cache_directory = dir_.path() + "/cache"};
  }
  void ExpectRefused(const JobDataArgs& args, const std::string& message) {
    const absl::Status status = OpenJobData(args).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(status), reason::kDataInvalid);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
  TempDir dir_;
};

TEST_F(OpenJobDataTest, EvaluationIsAbsentAFractionOrFilesOfItsOwn) {
  JobDataArgs args = Args("[1,2]\n[3,4]\n");
  EXPECT_EQ(Must(OpenJobData(args)).evaluation, nullptr);
  args.held_out.fraction = 0.1;
  JobData data = Must(OpenJobData(args));
  EXPECT_EQ(data.train->documents(), 1);
  EXPECT_EQ(data.evaluation->documents(), 1);
  args.evaluation = {{.source = JsonlSource({dir_.Write("validation.jsonl", "[5,6,7]\n")})}};
  ExpectRefused(args, "keep one of them");
  args.held_out.fraction = 0;
  data = Must(OpenJobData(args));
  EXPECT_EQ(data.train->documents(), 2);
  EXPECT_EQ(data.evaluation->tokens(), 3);
}

TEST_F(OpenJobDataTest, FractionsOutOfRangeAreRefused) {
  JobDataArgs args = Args("[1,2]\n[3,4]\n");
  for (const double fraction : {-0.1, 1.0, 2.0, std::numeric_limits<double>::quiet_NaN()}) {
    args.held_out.fraction = fraction;
    ExpectRefused(args, "validation_fraction is ");
  }
}

TEST_F(OpenJobDataTest, NoLabelAtAllIsRefusedWithTheArithmetic) {
  ExpectRefused(Args("[1]\n[2]\n[3]\n"), "3 document(s) with 3 token(s)");
  ExpectRefused(Args("{\"ids\":[1,2,3],\"labels\":[1,-100,-100]}\n"), "which makes 2, less");
}

TEST_F(OpenJobDataTest, EmptyEvaluationIsRefused) {
  JobDataArgs args = Args("[1,2]\n");
  args.evaluation = {{.source = JsonlSource({dir_.Write("validation.jsonl", "")})}};
  ExpectRefused(args, "no documents");
  args.evaluation = {{.source = JsonlSource({dir_.Write("validation.jsonl", "[1]\n")})}};
  ExpectRefused(args, "the validation data has no label");
}

TEST_F(OpenJobDataTest, DatasetsAreOneAfterTheOtherWithTheirNamesAndWeights) {
  JobDataArgs args = Args("[1,2]\n");
  args.train.push_back(
      {.name = "b", .source = JsonlSource({dir_.Write("b.jsonl", "[3,4,5]\n")}), .weight = 2});
  const JobData data = Must(OpenJobData(args));
  EXPECT_THAT(RowsOf(*data.train), ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4, 5)));
  EXPECT_EQ(data.train->labelled_tokens(), 3);
  EXPECT_TRUE(data.train->HasLabel(1, 1));
  EXPECT_FALSE(data.train->HasLabel(0, 1));
  EXPECT_THAT(data.train->LocationText(1), HasSubstr("b.jsonl:1"));
  EXPECT_EQ(data.train->parts()[1].weight, 2);
  for (const double weight : {0.0, -1.0, 1001.0, std::numeric_limits<double>::quiet_NaN()}) {
    args.train[1].weight = weight;
    ExpectRefused(args, "the weight of dataset b is ");
  }
  args.train[1] = {.name = "b", .source = JsonlSource({dir_.Write("b.jsonl", "[3]\n")})};
  ExpectRefused(args, "the training data of b has no label");
}

TEST_F(OpenJobDataTest, IdsOfBothSidesAreChecked) {
  ExpectRefused(Args("[1,100]\n"), "token id 100");
  JobDataArgs args = Args("[1,99]\n");
  args.evaluation = {{.source = JsonlSource({dir_.Write("validation.jsonl", "[1,2]\n[3,200]\n")})}};
  ExpectRefused(args, "validation.jsonl:2");
}

TEST_F(OpenJobDataTest, BytesNeed257Rows) {
  JobDataArgs args = Args("");
  args.train[0].source = {.paths = {dir_.Write("text", "hello")}};
  args.embedding_rows = 256;
  ExpectRefused(args, "token id 256");
  args.embedding_rows = 257;
  EXPECT_EQ(Must(OpenJobData(args)).train->tokens(), 6);
}

TEST_F(OpenJobDataTest, ProgressCoversBothSides) {
  JobDataArgs args = Args("[1,2]\n");
  args.evaluation = {{.source = JsonlSource({dir_.Write("validation.jsonl", "[5,6,7]\n")})}};
  double last = 0;
  bool saw_half = false;
  args.progress = [&](double fraction) {
    EXPECT_GE(fraction, last);
    last = fraction;
    saw_half |= fraction == 0.5;
    return absl::OkStatus();
  };
  Must(OpenJobData(args));
  EXPECT_TRUE(saw_half);
  EXPECT_EQ(last, 1.0);
}

}  // namespace
}  // namespace penstock
