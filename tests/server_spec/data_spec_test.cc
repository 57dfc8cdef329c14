#include "server/spec/data_spec.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "proto/message_file.h"
#include "server/spec/dataset_format.h"

namespace penstock::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class DataSpecTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/penstock-data-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = std::filesystem::canonical(pattern).string();
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + name).parent_path());
    std::ofstream(root_ + "/" + name) << text;
    return root_ + "/" + name;
  }
  // The data section as a person would write it; $R is the root.
  v1::JobSpec Spec(std::string yaml) const {
    for (size_t at; (at = yaml.find("$R")) != std::string::npos;) yaml.replace(at, 2, root_);
    v1::JobSpec spec;
    const absl::Status parsed = ParseMessageText(yaml, "test", &spec);
    EXPECT_TRUE(parsed.ok()) << parsed;
    if (!spec.has_model()) spec.mutable_model()->set_directory(root_);
    return spec;
  }
  absl::StatusOr<v1::JobSpec> Resolve(const std::string& yaml) const {
    v1::JobSpec spec = Spec(yaml);
    if (absl::Status status = ResolveData({root_}, spec); !status.ok()) return status;
    return spec;
  }
  DataConfig Config(const std::string& yaml) const {
    const auto spec = Resolve(yaml);
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.ok() ? ToDataConfig(spec->data()) : DataConfig{};
  }

  std::string root_;
};

TEST_F(DataSpecTest, PathsAloneAreRowsWhoseFormatIsFound) {
  const auto spec = Resolve("data: {paths: [$R/a.jsonl]}");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->data().format(), v1::DATA_FORMAT_AUTO);
  EXPECT_EQ(spec->type(), v1::JOB_TYPE_SFT);
  EXPECT_EQ(spec->data().tokenizer().kind(), v1::TOKENIZER_KIND_MODEL);
  EXPECT_EQ(spec->data().too_long(), v1::TOO_LONG_DROP);
  EXPECT_EQ(spec->data().chat().now_unix_seconds() % (24 * 3600), 0);
  EXPECT_GT(spec->data().chat().now_unix_seconds(), 0);
  const DataConfig config = ToDataConfig(spec->data());
  ASSERT_THAT(config.datasets, SizeIs(1));
  EXPECT_EQ(config.datasets[0].source.format, DataFormat::kRows);
  EXPECT_FALSE(config.datasets[0].source.rows.format);
  EXPECT_EQ(config.tokenizer, TokenizerChoice::kModel);
}

TEST_F(DataSpecTest, APretrainJobTakesTheTextOfRows) {
  const auto spec = Resolve("type: pretrain\ndata: {paths: [$R/a.jsonl]}");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->data().format(), v1::DATA_FORMAT_TEXT_ROWS);
  EXPECT_EQ(ToDataConfig(spec->data()).datasets[0].source.rows.format,
            DefaultFormat(RowFormat::kText));
}

TEST_F(DataSpecTest, SeveralDatasetsKeepTheirSettings) {
  const DataConfig config = Config(R"(
data:
  datasets:
  - {paths: [$R/a.json], format: alpaca, weight: 0.5, columns: {query: ctx, history: ""}}
  - {paths: [$R/b.jsonl], format: sharegpt, name: talk, max_rows: 7, tags: {user: person}}
  - {paths: [$R/c.jsonl], format: messages, alternate_turns: true}
  mask_history: true
  too_long: truncate
  on_bad_row: skip
  chat: {builtin: chatml, arguments: '{"enable_thinking": false}'}
)");
  ASSERT_THAT(config.datasets, SizeIs(3));
  const FormatSpec& alpaca = *config.datasets[0].source.rows.format;
  EXPECT_EQ(config.datasets[0].name, "a.json");
  EXPECT_EQ(config.datasets[0].weight, 0.5);
  EXPECT_EQ(alpaca.columns.query, (Column{"ctx", Column::Need::kNamed}));
  EXPECT_FALSE(alpaca.columns.history.used());
  EXPECT_EQ(alpaca.columns.prompt, (Column{"instruction", Column::Need::kRequired}));
  EXPECT_EQ(config.datasets[1].name, "talk");
  EXPECT_EQ(config.datasets[1].weight, 1);
  EXPECT_EQ(config.datasets[1].source.rows.max_rows, 7);
  EXPECT_EQ(config.datasets[1].source.rows.format->tags.user, "person");
  EXPECT_EQ(config.datasets[1].source.rows.format->turns, Turns::kAlternate);
  EXPECT_EQ(config.datasets[2].source.rows.format->turns, Turns::kAlternate);
  EXPECT_EQ(config.datasets[2].source.on_bad_row, BadRowPolicy::kSkip);
  EXPECT_TRUE(config.mask_history);
  EXPECT_EQ(config.too_long, TooLong::kTruncate);
  EXPECT_EQ(config.chat_template.kind, ChatTemplateChoice::Kind::kBuiltIn);
  EXPECT_EQ(config.chat_template.name, "chatml");
  EXPECT_EQ(config.chat_arguments_json, "{\"enable_thinking\": false}");
}

TEST_F(DataSpecTest, ADirectoryStandsForItsFiles) {
  Write("many/b.jsonl", "");
  Write("many/a.jsonl", "");
  Write("many/.hidden", "");
  Write("many/deeper/c.jsonl", "");
  EXPECT_THAT(Config("data: {paths: [$R/many]}").datasets[0].source.paths,
              ElementsAre(root_ + "/many/a.jsonl", root_ + "/many/b.jsonl"));
}

TEST_F(DataSpecTest, ChatTemplatesAreReadAtSubmit) {
  Write("t.jinja", "{{ messages }}");
  const DataConfig config =
      Config("data: {paths: [$R/a.jsonl], chat: {template_path: $R/t.jinja}}");
  EXPECT_EQ(config.chat_template.kind, ChatTemplateChoice::Kind::kText);
  EXPECT_EQ(config.chat_template.text, "{{ messages }}");
}

// Whatever an entry says arrives at the engine as ParseDatasetInfo() has it.
TEST_F(DataSpecTest, EntriesOfDatasetInfoKeepTheirExactMeaning) {
  const std::vector<std::string> entries = {
      R"({"file_name": "x.json"})",
      R"({"file_name": "x.json", "num_samples": 5})",
      R"({"file_name": "x.json", "columns": {"prompt": "q", "response": "a"}})",
      R"({"file_name": "x.json", "columns": {"query": "q", "response": "a", "system": "s"}})",
      R"({"file_name": "x.json", "formatting": "sharegpt"})",
      R"({"file_name": "x.json", "formatting": "sharegpt", "columns": {"messages": "m", "tools": "t"}})",
      R"({"file_name": "x.json", "formatting": "openai", "tags": {"role_tag": "role",
          "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}})"};
  for (const std::string& entry : entries) {
    const std::string text = "{\"set\": " + entry + "}";
    const std::string path = Write("dataset_info.json", text);
    const auto info = ParseDatasetInfo(text, path, "set");
    ASSERT_TRUE(info.ok()) << info.status();
    const std::string yaml =
        "data: {datasets: [{dataset_info: {path: $R/dataset_info.json, name: set}}]}";
    const auto spec = Resolve(yaml);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_FALSE(spec->data().datasets(0).has_dataset_info());
    EXPECT_EQ(spec->data().datasets(0).name(), "set");
    const DataConfig config = ToDataConfig(spec->data());
    const DataSource& source = config.datasets[0].source;
    EXPECT_EQ(source.rows.format, info->format) << entry;
    EXPECT_EQ(source.rows.max_rows, info->max_samples) << entry;
    EXPECT_THAT(source.paths, ElementsAre(root_ + "/x.json"));
    // A resolved spec resolves to itself.
    v1::JobSpec again = *spec;
    ASSERT_TRUE(ResolveData({root_}, again).ok());
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(*spec, again));
  }
}

TEST_F(DataSpecTest, ValidationDatasetsAreReadAsTheySay) {
  const auto spec = Resolve(
      "data: {paths: [$R/a.jsonl]}\n"
      "evaluation: {validation_datasets: [{paths: [$R/v.jsonl], format: alpaca}]}");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const std::vector<DatasetSource> datasets = ToEvaluationDatasets(*spec);
  ASSERT_THAT(datasets, SizeIs(1));
  EXPECT_EQ(datasets[0].source.rows.format, DefaultFormat(RowFormat::kAlpaca));
}

TEST_F(DataSpecTest, RefusesEveryBadFieldByName) {
  Write("empty/.keep", "");
  Write("info.json", R"({"set": {"file_name": "/etc/passwd"}, "hub": {"hf_hub_url": "a/b"}})");
  struct Refusal {
    std::string yaml, field, says;
  };
  const std::vector<Refusal> table = {
      {"data: {}", "data.paths", "no path"},
      {"data: {paths: [a.jsonl]}", "data.paths[0]", "absolute"},
      {"data: {paths: [$R/empty]}", "data.paths", "without files"},
      {"data: {paths: [$R/a], datasets: [{paths: [$R/a]}]}", "data", "both datasets"},
      {"data: {datasets: [{}]}", "data.datasets[0].paths", "no path"},
      {"data: {datasets: [{paths: [/etc/passwd]}]}", "data.datasets[0].paths[0]", "/etc/passwd"},
      {"data: {datasets: [{paths: [$R/a], weight: 0}]}", "data.datasets[0].weight", "from 0"},
      {"data: {datasets: [{paths: [$R/a], weight: 1001}]}", "data.datasets[0].weight", "1000"},
      {"data: {datasets: [{paths: [$R/a], max_rows: -1}]}", "data.datasets[0].max_rows", "-1"},
      {"data: {datasets: [{paths: [$R/a], format: text, max_rows: 5}]}",
       "data.datasets[0].max_rows", "no effect"},
      {"data: {datasets: [{paths: [$R/a], columns: {text: t}}]}", "data.datasets[0].columns",
       "name the format"},
      {"data: {datasets: [{paths: [$R/a], format: alpaca, columns: {text: t}}]}",
       "data.datasets[0].columns.text", "in the format alpaca"},
      {"data: {datasets: [{paths: [$R/a], format: alpaca, columns: {response: ''}}]}",
       "data.datasets[0].columns.response", "needs it"},
      {"data: {datasets: [{paths: [$R/a], format: alpaca, tags: {user: u}}]}",
       "data.datasets[0].tags.user", "without messages"},
      {"data: {datasets: [{paths: [$R/a], format: messages, tags: {role: ''}}]}",
       "data.datasets[0].tags.role", "what it is called"},
      {"data: {datasets: [{paths: [$R/a], format: alpaca, alternate_turns: true}]}",
       "data.datasets[0].alternate_turns", "no effect"},
      {"data: {datasets: [{dataset_info: {path: $R/info.json, name: set}, format: alpaca}]}",
       "data.datasets[0]", "dataset_info alone"},
      {"data: {datasets: [{dataset_info: {path: $R/info.json, name: none}}]}",
       "data.datasets[0].dataset_info", "has no dataset \"none\""},
      {"data: {datasets: [{dataset_info: {path: $R/info.json, name: hub}}]}",
       "data.datasets[0].dataset_info", "only local files"},
      {"data: {datasets: [{dataset_info: {path: $R/info.json, name: set}}]}",
       "data.datasets[0].paths[0]", "/etc/passwd"},
      {"type: pretrain\ndata: {paths: [$R/a], format: alpaca}", "data.format", "set type to SFT"},
      {"type: pretrain\ndata: {paths: [$R/a], train_on_prompt: true}", "data.train_on_prompt",
       "no effect"},
      {"data: {paths: [$R/a], format: text, chat: {builtin: chatml}}", "data.chat", "no effect"},
      {"data: {paths: [$R/a], format: text, too_long: drop}", "data.too_long", "no effect"},
      {"data: {paths: [$R/a], train_on_prompt: true, mask_history: true}", "data",
       "both train_on_prompt and mask_history"},
      {"data: {paths: [$R/a], chat: {builtin: ''}}", "data.chat.builtin", "such as chatml"},
      {"data: {paths: [$R/a], chat: {template_path: /etc/passwd}}", "data.chat.template_path",
       "/etc/passwd"},
      {"data: {paths: [$R/a], chat: {template_path: $R/none.jinja}}", "data.chat.template_path",
       "none.jinja"},
      {"model: {random: {config_json: x}}\ndata: {paths: [$R/a], tokenizer: {kind: model}}",
       "data.tokenizer.kind", "BYTES"},
      {"data: {datasets: [{paths: [$R/a]}]}\nevaluation: {validation_paths: [$R/v]}",
       "evaluation.validation_paths", "validation_datasets"},
      {"data: {paths: [$R/a]}\nevaluation: {validation_paths: [$R/v], "
       "validation_datasets: [{paths: [$R/v]}]}",
       "evaluation", "more than one"},
  };
  for (const Refusal& row : table) {
    const absl::Status status = Resolve(row.yaml).status();
    ASSERT_FALSE(status.ok()) << row.yaml;
    EXPECT_EQ(MetadataOf(status)["field"], row.field) << row.yaml << "\n" << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.says)) << row.yaml;
  }
}

}  // namespace
}  // namespace penstock::server
