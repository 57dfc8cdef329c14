#include "client/audit_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace penstock::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

VerifyReport Report() {
  return {.path = "/c/4",
          .subject = "checkpoint",
          .job = "jobs/a",
          .step = 4,
          .attempt = 2,
          .public_key = "ab",
          .provenance_sha256 = "cd",
          .findings = {{Verdict::kProven, "signature", "/c/4", "signed"},
                       {Verdict::kOpen, "key", "/c/4", "whose \x1b[31m"},
                       {Verdict::kProven, "files", "/c/2", "all 3 files"}}};
}

TEST(VerifyTextTest, SaysLineByLineWhatIsProven) {
  VerifyReport report = Report();
  EXPECT_EQ(VerifyText(report),
            "checkpoint of jobs/a, step 4, attempt 2\n"
            "/c/4\n"
            "  proven      signed\n"
            "  NOT PROVEN  whose ?[31m\n"
            "/c/2\n"
            "  proven      all 3 files\n"
            "nothing is wrong; 1 not proven here\n");
  report.findings.push_back({Verdict::kWrong, "file", "/c/2", "x has changed"});
  EXPECT_THAT(VerifyText(report), AllOf(HasSubstr("  WRONG       x has changed\n"),
                                        HasSubstr("WRONG: 1; 1 not proven here\n")));
  const nlohmann::json json = nlohmann::json::parse(VerifyJson(report));
  EXPECT_EQ(json["wrong"], true);
  EXPECT_EQ(json["findings"][3]["verdict"], "wrong");
  EXPECT_EQ(json["findings"][1]["what"], "key");
}

TEST(DiffTextTest, ShowsWhatMovedMostAndWhatIsOdd) {
  WeightsDiff diff;
  diff.tensors = {{.name = "a",
                   .shape = {2, 3},
                   .elements = 6,
                   .changed = 6,
                   .norm_before = 2,
                   .norm_after = 2,
                   .change_norm = 0.5,
                   .max_abs_change = 0.25},
                  {.name = "b",
                   .shape = {3},
                   .elements = 3,
                   .changed = 3,
                   .norm_before = 1,
                   .norm_after = 2,
                   .change_norm = 1,
                   .max_abs_change = 1},
                  {.name = "new",
                   .shape = {1},
                   .elements = 1,
                   .changed = 1,
                   .norm_after = 1,
                   .change_norm = 1,
                   .max_abs_change = 1}};
  diff.only_after = {"c"};
  const std::string text = DiffText(diff, 2);
  EXPECT_THAT(text, AllOf(HasSubstr("only after: c\n"), HasSubstr("no anomalies\n")));
  EXPECT_LT(text.find("\nnew "), text.find("\nb "));
  EXPECT_THAT(text, Not(HasSubstr("\na "))) << "two were asked for";
  diff.anomalies = {{.kind = AnomalyKind::kAllZero, .tensor = "b", .text = "all"}};
  EXPECT_THAT(DiffText(diff, 0), HasSubstr("ANOMALY all_zero: b: all\n"));
  const nlohmann::json json = nlohmann::json::parse(DiffJson(diff));
  EXPECT_EQ(json["tensors"].size(), 3u);
  EXPECT_EQ(json["tensors"][0]["relative_change"], 0.25);
  EXPECT_TRUE(json["tensors"][2]["relative_change"].is_null()) << "from zero";
  EXPECT_EQ(json["anomalies"][0]["kind"], "all_zero");
}

}  // namespace
}  // namespace penstock::client
