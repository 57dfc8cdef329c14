// What a job would be trained on, and a job that is.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/train/job_encoding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/train_testing.h"
#include "tests/engine/train/weights_testing.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class InspectDataTest : public ::testing::Test {
 protected:
  TrainConfig Config(const std::string& rows) {
    const std::string path = dir_.Path("rows.jsonl");
    std::ofstream(path) << rows;
    TrainConfig config = testing::TinyTrainConfig(dir_.Path("run"), path);
    config.data.datasets[0].source = {.format = DataFormat::kRows, .paths = {path}};
    config.data.chat_template = {.kind = ChatTemplateChoice::Kind::kBuiltIn, .name = "chatml"};
    config.batch = {.sequence_length = 96, .tokens_per_step = 192, .micro_batch_tokens = 96};
    return config;
  }
  void ExpectRefused(const TrainConfig& config, std::string_view reason, const std::string& words) {
    for (const absl::Status& status :
         {PlanTraining(config).status(), InspectData(config, {}).status()}) {
      EXPECT_EQ(ReasonOf(status), reason) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    }
  }

  testing::TempDir dir_;
};

constexpr char kRow[] = "{\"instruction\":\"q\",\"output\":\"abc\"}\n";

TEST_F(InspectDataTest, ShowsWhatIsLearned) {
  const TrainConfig config = Config(std::string(kRow) + kRow + "{\"instruction\":\"r\"," +
                                    "\"output\":\"" + std::string(100, 'x') + "\"}\n");
  const auto data = InspectData(config, {.examples = 5});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->report.documents, 2);
  EXPECT_EQ(data->report.Of(NoteKind::kTooLong).count, 1);
  ASSERT_EQ(data->examples.size(), 2u);
  const InspectedExample& example = data->examples[0];
  EXPECT_THAT(example.location, HasSubstr("rows.jsonl:1"));
  ASSERT_EQ(example.segments.size(), 2u);
  EXPECT_EQ(example.segments[0].text, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_FALSE(example.segments[0].learned);
  EXPECT_EQ(example.segments[1].text, "abc<|im_end|>\n");
  EXPECT_TRUE(example.segments[1].learned);
  EXPECT_EQ(example.learned_tokens, 14);
  ASSERT_EQ(data->lengths.size(), 4u);
  EXPECT_EQ(data->lengths[3].up_to, 128);
  EXPECT_EQ(data->lengths[3].documents, 2);
  EXPECT_EQ(data->notes.size(), 2u);
}

TEST_F(InspectDataTest, AJobTrainsOnTheSameDataAndFindsThemTokenized) {
  const TrainConfig config = Config(std::string(kRow) + kRow + kRow);
  const auto data = InspectData(config, {});
  ASSERT_TRUE(data.ok()) << data.status();
  testing::RecordingObserver observer;
  const auto summary = Train(config, observer);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(observer.log, AllOf(HasSubstr("chat template: the built-in template chatml"),
                                  HasSubstr("format alpaca, found by the columns of")));
  int64_t labels = 0;
  for (const StepRecord& step : observer.steps) labels = std::max(labels, step.labelled_tokens);
  EXPECT_EQ(labels, 2 * 14);  // a row holds one document, a step two rows
  EXPECT_LT(observer.steps.back().loss, observer.steps.front().loss);
}

TEST_F(InspectDataTest, StoppingItLeavesNothingBehind) {
  const auto data = InspectData(
      Config(kRow), {.progress = [](double) { return absl::CancelledError("enough"); }});
  EXPECT_EQ(data.status(), absl::CancelledError("enough"));
}

TEST_F(InspectDataTest, WhatTakesMoreMemoryThanAllowedIsRefusedWithTheNumbers) {
  const TrainConfig config = Config(std::string(kRow) + kRow + kRow);
  for (const auto& [bytes, words] : {std::pair{int64_t{50}, "3 documents or more"},
                                     {int64_t{100}, "to order 3 documents takes"}}) {
    const absl::Status status = InspectData(config, {.host_memory_bytes = bytes}).status();
    EXPECT_EQ(ReasonOf(status), reason::kHostMemoryInsufficient) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(words), HasSubstr("max_rows")));
  }
  const auto data = InspectData(config, {.host_memory_bytes = int64_t{1} << 30});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->report.documents, 3);
}

TEST_F(InspectDataTest, WhatCannotBeTokenizedIsRefusedAtSubmit) {
  TrainConfig config = Config(kRow);
  config.data.chat_template.name = "none";
  ExpectRefused(config, reason::kDataInvalid, "chatml");
  config.data.chat_template = {
      .kind = ChatTemplateChoice::Kind::kText, .name = "mine", .text = "{% if %}"};
  ExpectRefused(config, reason::kDataInvalid, "mine, line 1");
  config = Config(kRow);
  config.data.chat_arguments_json = "{\"messages\": []}";
  ExpectRefused(config, reason::kSpecInvalid, "\"messages\" is set for every row");
  config.data.chat_arguments_json = "[1]";
  ExpectRefused(config, reason::kSpecInvalid, "expected a JSON object");
  config = Config(kRow);
  config.data.tokenizer = TokenizerChoice::kModel;
  ExpectRefused(config, reason::kSpecInvalid, "expected BYTES");
  config = Config(kRow);
  config.data.chat_template = {};
  config.data.datasets[0].source.rows.format = DefaultFormat(RowFormat::kAlpaca);
  ExpectRefused(config, reason::kDataInvalid, "data.chat");
}

// BC-24: 384 ids; the model has 383 rows, as many, or more.
TEST_F(InspectDataTest, ATokenizerWithMoreIdsThanTheModelHasRowsIsRefusedWithTheToken) {
  const char* const testdata = std::getenv("PENSTOCK_TESTDATA");
  const nlohmann::json golden = nlohmann::json::parse(testing::ReadFileOrDie(
      std::string(testdata == nullptr ? "tests/testdata" : testdata) + "/tokenizers/qwen.json"));
  for (const int64_t rows : {383, 384, 448}) {
    nlohmann::json model = testing::TinyConfig();
    model["vocab_size"] = rows;
    const std::string path = dir_.Path(std::to_string(rows));
    std::filesystem::create_directory(path);
    testing::WriteModel(path, model,
                        testing::MakeFiles(testing::SpecOf(model), WeightType::kFloat32, 1));
    testing::WriteFileOrDie(path + "/tokenizer.json", golden["tokenizer"].dump());
    TrainConfig config = Config("{\"instruction\":\"q\",\"output\":\"</think>\"}\n");
    config.model = ModelFromDirectory{path};
    config.data.tokenizer = TokenizerChoice::kModel;
    if (rows == 383) {
      ExpectRefused(config, reason::kModelInvalid, "383 (\"</think>\"), but");
      ExpectRefused(config, reason::kModelInvalid, "embedding has 383 rows");
    } else {
      EXPECT_TRUE(PlanTraining(config).ok()) << PlanTraining(config).status();
      EXPECT_TRUE(InspectData(config, {}).ok()) << InspectData(config, {}).status();
    }
  }
}

}  // namespace
}  // namespace penstock
