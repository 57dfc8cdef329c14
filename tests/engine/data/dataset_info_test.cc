#include "engine/data/dataset_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/data/row_format.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

using testing::HasSubstr;
using Need = Column::Need;

absl::StatusOr<DatasetInfo> Parse(const std::string& entry) {
  return ParseDatasetInfo("{\"other\":{},\"mine\":" + entry + "}", "dataset_info.json", "mine");
}

DatasetInfo Entry(const std::string& entry) {
  const absl::StatusOr<DatasetInfo> info = Parse(entry);
  EXPECT_TRUE(info.ok()) << info.status();
  return info.value_or(DatasetInfo{});
}

std::string Refusal(const std::string& entry) {
  const absl::Status status = Parse(entry).status();
  EXPECT_EQ(ReasonOf(status), reason::kDataInvalid) << entry;
  return std::string(status.message());
}

TEST(DatasetInfoTest, WithoutColumnsTheDefaultsHold) {
  const DatasetInfo info = Entry(R"({"file_name":"a.json"})");
  EXPECT_EQ(info.file_name, "a.json");
  EXPECT_EQ(info.max_samples, std::nullopt);
  EXPECT_EQ(info.format.format, RowFormat::kAlpaca);
  const Columns& columns = info.format.columns;
  EXPECT_EQ(columns.prompt, (Column{"instruction", Need::kRequired}));
  EXPECT_EQ(columns.query, (Column{"input", Need::kOptional}));
  EXPECT_EQ(columns.response, (Column{"output", Need::kRequired}));
  for (const Column* column :
       {&columns.history, &columns.system, &columns.tools, &columns.text, &columns.messages}) {
    EXPECT_FALSE(column->used());
  }
}

TEST(DatasetInfoTest, WithColumnsWhatIsNotNamedIsUnused) {
  const Columns columns =
      Entry(R"({"file_name":"a.json","columns":{"prompt":"q","response":"a","history":"h"}})")
          .format.columns;
  EXPECT_EQ(columns.prompt, (Column{"q", Need::kRequired}));
  EXPECT_FALSE(columns.query.used());
  EXPECT_EQ(columns.history, (Column{"h", Need::kNamed}));
  const Columns with_query = Entry(R"({"file_name":"a","columns":{"prompt":"q","query":"x",
                                      "response":"a","system":null}})")
                                 .format.columns;
  EXPECT_EQ(with_query.query, (Column{"x", Need::kNamed}));
  EXPECT_FALSE(with_query.system.used());
  EXPECT_THAT(Refusal(R"({"file_name":"a","columns":{"prompt":"q"}})"),
              HasSubstr("mine.columns.response: is not named"));
  EXPECT_THAT(Refusal(R"({"file_name":"a","columns":{"response":"q"}})"),
              HasSubstr("mine.columns.prompt"));
  EXPECT_THAT(Refusal(R"({"file_name":"a","formatting":"sharegpt","columns":{"system":"s"}})"),
              HasSubstr("mine.columns.messages"));
}

TEST(DatasetInfoTest, ShareGptHasTagsAndTheSameRule) {
  const FormatSpec standard = Entry(R"({"file_name":"a","formatting":"sharegpt"})").format;
  FormatSpec expected = DefaultFormat(RowFormat::kShareGpt);
  expected.columns.system = {};  // LLaMA-Factory looks for neither unless named
  expected.columns.tools = {};
  EXPECT_EQ(standard, expected);
  const Tags tags = Entry(R"({"file_name":"a","formatting":"sharegpt","tags":{"role_tag":"r",
      "content_tag":"c","user_tag":"u","assistant_tag":"s"}})")
                        .format.tags;
  EXPECT_EQ(tags, (Tags{"r", "c", "u", "s", "", "", ""}));
  EXPECT_THAT(Refusal(R"({"file_name":"a","formatting":"sharegpt","tags":{"role_tag":"r"}})"),
              HasSubstr("mine.tags.content_tag: is not named"));
}

TEST(DatasetInfoTest, OpenAiIsMessagesThatAlternate) {
  const FormatSpec spec = Entry(R"({"file_name":"a","formatting":"openai",
      "columns":{"messages":"messages"},"tags":{"role_tag":"role","content_tag":"content",
      "user_tag":"user","assistant_tag":"assistant","observation_tag":"tool"}})")
                              .format;
  EXPECT_EQ(spec.format, RowFormat::kMessages);
  EXPECT_EQ(spec.turns, Turns::kAlternate);
  Example example;
  const auto row = [](const std::string& roles) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const char role : roles) {
      list.push_back({{"role", role == 'u'   ? "user"
                               : role == 't' ? "tool"
                                             : "assistant"},
                      {"content", "x"}});
    }
    return nlohmann::ordered_json{{"messages", list}};
  };
  EXPECT_FALSE(ToExample(row("uattaua"), spec, example));  // tool answers in a row are one turn
  EXPECT_FALSE(ToExample(row("uata"), spec, example));
  EXPECT_TRUE(ToExample(row("uaa"), spec, example));
  EXPECT_TRUE(ToExample(row("uau"), spec, example));
}

TEST(DatasetInfoTest, OnlyLocalFilesOfTextAreTaken) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"hf_hub_url":"x/y","file_name":"a"})", "mine.hf_hub_url: only local files"},
      {R"({"ms_hub_url":"x/y"})", "only local files"},
      {R"({"script_url":"x"})", "only local files"},
      {R"({"cloud_file_name":"s3://x"})", "only local files"},
      {R"({})", "mine.file_name: found nothing"},
      {R"({"file_name":3})", "expected a string"},
      {R"({"file_name":"a","ranking":true})", "preference data"},
      {R"({"file_name":"a","columns":{"prompt":"p","response":"r","images":"i"}})",
       "mine.columns.images"},
      {R"({"file_name":"a","split":"test"})", "mine.split"},
      {R"({"file_name":"a","subset":"x"})", "mine.subset"},
      {R"({"file_name":"a","num_samples":0})", "mine.num_samples"},
      {R"({"file_name":"a","formatting":"chatml"})", "expected alpaca, sharegpt or openai"},
      {R"({"file_name":"a","columns":[]})", "expected an object of column names"},
      {R"([])", "mine is not an object"},
  };
  for (const auto& [entry, message] : cases) EXPECT_THAT(Refusal(entry), HasSubstr(message));
  EXPECT_EQ(
      Entry(R"({"file_name":"a","ranking":false,"split":"train","num_samples":7})").max_samples, 7);
}

TEST(DatasetInfoTest, AMissingEntryListsThoseThatAreThere) {
  const absl::Status status =
      ParseDatasetInfo(R"({"a":{},"b":{}})", "dir/dataset_info.json", "c").status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("dir/dataset_info.json: has no dataset \"c\"; it has 2: a, b"));
  EXPECT_FALSE(ParseDatasetInfo("[]", "x", "c").ok());
  EXPECT_FALSE(ParseDatasetInfo("{", "x", "c").ok());
}

}  // namespace
}  // namespace penstock
