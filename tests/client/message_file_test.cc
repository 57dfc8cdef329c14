#include "proto/message_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/job_spec.pb.h"
#include "proto/message_print.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

absl::Status Parse(const std::string& text, v1::JobSpec* spec) {
  return ParseMessageText(text, "job.yaml", spec);
}

// The message of a text that must be refused.
std::string Refusal(const std::string& text) {
  v1::JobSpec spec;
  const absl::Status status = Parse(text, &spec);
  EXPECT_FALSE(status.ok()) << text;
  if (!status.ok()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(status), reason::kSpecInvalid);
  }
  return std::string(status.message());
}

TEST(MessageFileTest, ReadsEverySpellingOfANumberAlike) {
  for (const char* written : {"1e-5", "1.0e-5", "'1e-5'", "\"1e-5\"", "1E-05", ".00001", "0.00001",
                              "1e-5   ", "+1e-5", "1e-5 # a comment"}) {
    v1::JobSpec spec;
    const absl::Status status =
        Parse(absl::StrCat("optimizer:\n  learning_rate: ", written, "\n"), &spec);
    ASSERT_TRUE(status.ok()) << written << ": " << status;
    EXPECT_EQ(spec.optimizer().learning_rate(), 1e-5) << written;
  }
}

TEST(MessageFileTest, ReadsNumbersOfJsonAlike) {
  for (const char* written : {"1e-5", "1.0e-5", "\"1e-5\"", "1E-05", "0.00001"}) {
    v1::JobSpec spec;
    const absl::Status status =
        Parse(absl::StrCat("{\"optimizer\": {\"learningRate\": ", written, "}}"), &spec);
    ASSERT_TRUE(status.ok()) << written << ": " << status;
    EXPECT_EQ(spec.optimizer().learning_rate(), 1e-5) << written;
  }
}

TEST(MessageFileTest, RefusesWhatIsNoNumber) {
  for (const char* written :
       {"1,0e-5", "nan",     ".nan", ".inf", "-.inf", "inf",  "1_000", "010",
        "0x10",   "1:30",    "1e",   "e5",   ".",     "'-'",  "--1",   "1e400",
        "1 000",  "'1e-5 '", "yes",  "true", "1e-5f", "\"\"", "[1]",   "{a: 1}"}) {
    EXPECT_THAT(Refusal(absl::StrCat("optimizer:\n  learning_rate: ", written, "\n")),
                AllOf(HasSubstr("job.yaml:2"), HasSubstr("optimizer.learning_rate"),
                      HasSubstr("expected a number")))
        << written;
  }
}

TEST(MessageFileTest, ReadsIntegersThatAreIntegers) {
  const std::vector<std::pair<std::string, int64_t>> table = {{"1000", 1000},
                                                              {"1e3", 1000},
                                                              {"1000.0", 1000},
                                                              {"1.5e3", 1500},
                                                              {"'1000'", 1000},
                                                              {"0", 0},
                                                              {"-0", 0},
                                                              {"0.0", 0},
                                                              {"100e-2", 1},
                                                              {"9223372036854775807", INT64_MAX},
                                                              {"-9223372036854775808", INT64_MIN},
                                                              {"-7", -7}};
  for (const auto& [written, value] : table) {
    v1::JobSpec spec;
    const absl::Status status = Parse(absl::StrCat("schedule: {max_steps: ", written, "}"), &spec);
    ASSERT_TRUE(status.ok()) << written << ": " << status;
    EXPECT_EQ(spec.schedule().max_steps(), value) << written;
  }
}

TEST(MessageFileTest, RefusesWhatIsNoIntegerInRange) {
  for (const char* written : {"1_000", "010", "1.5", "1e-1", "9223372036854775808", "1e19", "1e400",
                              "-9223372036854775809", "1,000", "64k", "64 GiB", "nan", "true"}) {
    EXPECT_THAT(Refusal(absl::StrCat("schedule: {max_steps: '", written, "'}")),
                AllOf(HasSubstr("schedule.max_steps"), HasSubstr(written),
                      AnyOf(HasSubstr("expected an integer from -9223372036854775808"),
                            HasSubstr("expected a whole number"))))
        << written;
  }
  EXPECT_THAT(Refusal("limits: {host_memory_bytes: 16GiB}"), HasSubstr("number of bytes"));
  EXPECT_THAT(Refusal("limits: {run_seconds: 1h}"), HasSubstr("number of seconds, such as 3600"));
  EXPECT_THAT(Refusal("seed: -1"), HasSubstr("from 0 to 18446744073709551615"));
  EXPECT_THAT(Refusal("limits: {compute_threads: 2147483648}"), HasSubstr("2147483647"));
}

TEST(MessageFileTest, ReadsTextAsItIsWritten) {
  v1::JobSpec spec;
  ASSERT_TRUE(Parse("labels:\n  a: no\n  b: 010\n  c: 1e-5\n  d: null\n  e: ~\n  f: yes\n"
                    "  g: \"quoted: text\"\n  on: 1.0\ndisplay_name: 12_345\n",
                    &spec)
                  .ok());
  const auto& labels = spec.labels();
  EXPECT_EQ(labels.at("a"), "no");
  EXPECT_EQ(labels.at("b"), "010");
  EXPECT_EQ(labels.at("c"), "1e-5");
  EXPECT_EQ(labels.at("d"), "null");
  EXPECT_EQ(labels.at("e"), "~");
  EXPECT_EQ(labels.at("f"), "yes");
  EXPECT_EQ(labels.at("g"), "quoted: text");
  EXPECT_EQ(labels.at("on"), "1.0");
  EXPECT_EQ(spec.display_name(), "12_345");
}

TEST(MessageFileTest, BooleansAreTrueAndFalseOnly) {
  v1::CreateJobRequest request;
  ASSERT_TRUE(ParseMessageText("validate_only: true", "x", &request).ok());
  EXPECT_TRUE(request.validate_only());
  ASSERT_TRUE(ParseMessageText("validate_only: false", "x", &request).ok());
  EXPECT_FALSE(request.validate_only());
  for (const char* written : {"yes", "no", "on", "off", "True", "TRUE", "0", "1", "~", "''"}) {
    const absl::Status status =
        ParseMessageText(absl::StrCat("validate_only: ", written), "x", &request);
    EXPECT_THAT(std::string(status.message()), HasSubstr("expected true or false")) << written;
  }
}

TEST(MessageFileTest, ReadsEnumsShortOrInFull) {
  for (const char* written :
       {"cosine", "COSINE", "Cosine", "SCHEDULE_KIND_COSINE", "schedule_kind_cosine", "'cosine'"}) {
    v1::JobSpec spec;
    ASSERT_TRUE(Parse(absl::StrCat("schedule: {kind: ", written, "}"), &spec).ok()) << written;
    EXPECT_EQ(spec.schedule().kind(), v1::SCHEDULE_KIND_COSINE);
  }
  v1::JobSpec spec;
  ASSERT_TRUE(Parse("data: {format: token_ids_jsonl}", &spec).ok());
  EXPECT_EQ(spec.data().format(), v1::DATA_FORMAT_TOKEN_IDS_JSONL);
}

TEST(MessageFileTest, RefusesUnknownEnumValuesWithTheList) {
  for (const char* written : {"cosin", "3", "unspecified", "SCHEDULE_KIND_UNSPECIFIED", "''"}) {
    EXPECT_THAT(Refusal(absl::StrCat("schedule: {kind: ", written, "}")),
                AllOf(HasSubstr("schedule.kind"), HasSubstr("constant, linear, cosine")))
        << written;
  }
  EXPECT_THAT(Refusal("schedule: {kind: cosin}"), HasSubstr("did you mean \"cosine\"?"));
}

TEST(MessageFileTest, UnknownKeysAreRefusedWithTheLikelyOne) {
  EXPECT_THAT(Refusal("seed: 1\nbatch:\n  tokens_per_step: 8\n  sequence_lenght: 4\n"),
              AllOf(HasSubstr("job.yaml:4: batch.sequence_lenght: unknown key"),
                    HasSubstr("did you mean \"sequence_length\"?")));
  EXPECT_THAT(Refusal("{\n  \"seed\": 1,\n  \"optimzer\": {}\n}"),
              AllOf(HasSubstr("job.yaml:3: optimzer"), HasSubstr("did you mean \"optimizer\"?")));
  EXPECT_THAT(Refusal("data: {zzzzzzzzzzzz: 1}"), HasSubstr("the keys here are format, paths"));
}

TEST(MessageFileTest, ErrorsCarryFieldAndLine) {
  v1::JobSpec spec;
  const absl::Status status = Parse("seed: 1\nschedule:\n  max_steps: lots\n", &spec);
  const ErrorMetadata metadata = MetadataOf(status);
  EXPECT_EQ(metadata.at("file"), "job.yaml");
  EXPECT_EQ(metadata.at("line"), "3");
  EXPECT_EQ(metadata.at("field"), "schedule.max_steps");
  EXPECT_EQ(metadata.at("found"), "\"lots\"");
}

TEST(MessageFileTest, JsonKnowsTheLineOfItsNumbers) {
  EXPECT_THAT(Refusal("{\n\"schedule\": {\n\"max_steps\": 1.5\n}\n}"), HasSubstr("job.yaml:3:"));
  EXPECT_THAT(Refusal("{\n\"schedule\": {\n\"max_steps\": 1.5, \"epochs\": 1\n}\n}"),
              HasSubstr("job.yaml:3:"));
}

TEST(MessageFileTest, RefusesAKeyGivenTwice) {
  EXPECT_THAT(Refusal("seed: 1\nseed: 2\n"),
              AllOf(HasSubstr("job.yaml:2: seed"), HasSubstr("twice")));
  EXPECT_THAT(Refusal("{\"seed\": 1, \"seed\": 1}"), HasSubstr("twice"));
  EXPECT_THAT(Refusal("batch: {sequence_length: 1, sequenceLength: 1}"), HasSubstr("twice"));
  EXPECT_THAT(Refusal("labels: {a: x, a: y}"), HasSubstr("twice"));
}

TEST(MessageFileTest, RefusesTwoMembersOfAOneof) {
  EXPECT_THAT(Refusal("model:\n  directory: /m\n  random: {config_json: '{}'}\n"),
              AllOf(HasSubstr("model: found both \"directory\" and \"random\""),
                    HasSubstr("remove the other")));
}

TEST(MessageFileTest, RefusesTheWrongShape) {
  EXPECT_THAT(Refusal("data: {paths: /a}"), HasSubstr("expected a list"));
  EXPECT_THAT(Refusal("data: {paths: {a: b}}"), HasSubstr("expected a list"));
  EXPECT_THAT(Refusal("data: {paths: [[a]]}"), HasSubstr("data.paths[0]"));
  EXPECT_THAT(Refusal("batch: 3"), HasSubstr("expected a map"));
  EXPECT_THAT(Refusal("labels: [a]"), HasSubstr("expected a map"));
  EXPECT_THAT(Refusal("- a\n- b\n"), HasSubstr("expected a map"));
  EXPECT_THAT(Refusal("batch:\n"), HasSubstr("leave the key out"));
  EXPECT_THAT(Refusal("seed:\n"), HasSubstr("leave the key out"));
  EXPECT_THAT(Refusal("{\"seed\": null}"), HasSubstr("leave the key out"));
  EXPECT_THAT(Refusal("just text"), HasSubstr("expected a map"));
}

TEST(MessageFileTest, RefusesAnchorsAliasesTagsAndMergeKeys) {
  EXPECT_THAT(Refusal("batch: &b {sequence_length: 4}\n"), HasSubstr("anchors"));
  EXPECT_THAT(Refusal("batch:\n  <<: {sequence_length: 4}\n"), HasSubstr("merge keys"));
  EXPECT_THAT(Refusal("seed: !!int 3\n"), HasSubstr("tag"));
  EXPECT_THAT(Refusal("seed: *x\n"), HasSubstr("job.yaml:1"));
}

TEST(MessageFileTest, BillionLaughsStaySmall) {
  std::string bomb = "labels:\n  a: &a [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    const char before = static_cast<char>(c - 1);
    absl::StrAppend(&bomb, "  ", std::string(1, c), ": &", std::string(1, c), " [");
    for (int i = 0; i < 9; ++i) absl::StrAppend(&bomb, i ? ",*" : "*", std::string(1, before));
    bomb += "]\n";
  }
  EXPECT_THAT(Refusal(bomb), HasSubstr("anchors"));
}

TEST(MessageFileTest, DepthAndSizeAreBounded) {
  EXPECT_THAT(Refusal(std::string(100'000, '[')), HasSubstr("job.yaml:1"));
  EXPECT_THAT(Refusal("{\"a\":" + std::string(100'000, '[')), HasSubstr("deeper than 32"));
  std::string nested = "{\"a\":";
  for (int i = 0; i < 10'000; ++i) nested += "{\"a\":";
  EXPECT_THAT(Refusal(nested), HasSubstr("deeper than 32"));
  EXPECT_THAT(Refusal(std::string(kMaxMessageTextBytes + 1, ' ')), HasSubstr("1048576"));
}

TEST(MessageFileTest, RefusesWhatIsNoText) {
  EXPECT_THAT(Refusal(""), HasSubstr("empty"));
  EXPECT_THAT(Refusal("\n  \n"), HasSubstr("empty"));
  EXPECT_THAT(Refusal(std::string("seed: 1\n\0", 9)), HasSubstr("control character"));
  EXPECT_THAT(Refusal("seed: \x80"), HasSubstr("UTF-8"));
  EXPECT_THAT(Refusal("display_name: \xC0\xAF"), HasSubstr("UTF-8"));
  EXPECT_THAT(Refusal("\x7f"
                      "ELF"),
              HasSubstr("control character"));
  EXPECT_THAT(Refusal("seed: [1"), HasSubstr("not YAML"));
  EXPECT_THAT(Refusal("{\"seed\": 1"), HasSubstr("not JSON"));
  EXPECT_THAT(Refusal("{\"seed\": 1} x"), HasSubstr("not JSON"));
  EXPECT_THAT(Refusal("seed: 1\n---\nseed: 2\n"), HasSubstr("second document"));
  EXPECT_THAT(Refusal("? [a, b]\n: c\n"), HasSubstr("key must be a plain name"));
}

// Every prefix and every single-byte change of a valid file gives an answer, never a crash.
TEST(MessageFileTest, SurvivesDamagedFiles) {
  const std::string yaml =
      "model: {random: {config_json: '{\"a\": 1}'}}\ndata:\n  format: text\n  paths: [/a, '/b']\n"
      "labels: {x: \"y\\n\"}\n";
  const std::string json = "{\"model\": {\"directory\": \"\\u00e9\\ud83d\\ude00\"}, \"seed\": 12}";
  for (const std::string& text : {yaml, json}) {
    int refused = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      v1::JobSpec spec;
      if (!Parse(text.substr(0, i), &spec).ok()) ++refused;
      for (const char c : {'{', '}', '[', ':', '"', '\'', '\n', '&', '*', '\\', '\t', '\x01'}) {
        std::string damaged = text;
        damaged[i] = c;
        if (!Parse(damaged, &spec).ok()) ++refused;
      }
    }
    EXPECT_GT(refused, 100);
  }
}

TEST(MessageFileTest, JsonEscapesBecomeUtf8) {
  v1::JobSpec spec;
  ASSERT_TRUE(Parse("{\"display_name\": \"\\u00e9\\ud83d\\ude00\\/\"}", &spec).ok());
  EXPECT_EQ(spec.display_name(), "\xC3\xA9\xF0\x9F\x98\x80/");
}

v1::JobSpec FullSpec() {
  v1::JobSpec spec;
  spec.mutable_model()->mutable_random()->set_config_json("{\n  \"model_type\": \"llama\"\t}");
  spec.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
  spec.mutable_data()->add_paths("/data/a b.txt");
  spec.mutable_data()->add_paths("/data/\"quoted\": #1");
  spec.mutable_batch()->set_sequence_length(128);
  spec.mutable_optimizer()->set_learning_rate(3e-4);
  spec.mutable_optimizer()->set_epsilon(1e-8);
  spec.mutable_optimizer()->set_max_grad_norm(0);
  spec.mutable_schedule()->set_kind(v1::SCHEDULE_KIND_LINEAR);
  spec.mutable_schedule()->set_final_fraction(0.1);
  spec.set_seed(UINT64_MAX);
  spec.set_display_name("no");
  (*spec.mutable_labels())["on"] = "010";
  (*spec.mutable_labels())["b"] = "";
  spec.mutable_evaluation();
  return spec;
}

TEST(MessagePrintTest, YamlAndJsonReadBackToTheSameMessage) {
  const v1::JobSpec spec = FullSpec();
  for (const std::string& text : {MessageToYaml(spec), MessageToJson(spec)}) {
    v1::JobSpec again;
    const absl::Status status = Parse(text, &again);
    ASSERT_TRUE(status.ok()) << status << "\n" << text;
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(spec, again)) << text;
  }
}

TEST(MessagePrintTest, YamlUsesShortNames) {
  EXPECT_THAT(MessageToYaml(FullSpec()),
              AllOf(HasSubstr("  kind: linear\n"), HasSubstr("sequence_length: 128\n"),
                    HasSubstr("learning_rate: 3.0e-04\n"), HasSubstr("display_name: \"no\"\n")));
}

TEST(MessageFileTest, SetsSingleFields) {
  v1::JobSpec spec = FullSpec();
  ASSERT_TRUE(SetMessageField("optimizer.learning_rate", "1e-5", "--set", &spec).ok());
  ASSERT_TRUE(SetMessageField("data.paths", "[/x, /y]", "--set", &spec).ok());
  ASSERT_TRUE(SetMessageField("model.directory", "/m", "--set", &spec).ok());
  ASSERT_TRUE(SetMessageField("labels.new", "yes", "--set", &spec).ok());
  EXPECT_EQ(spec.optimizer().learning_rate(), 1e-5);
  EXPECT_EQ(spec.optimizer().epsilon(), 1e-8);  // left as it was
  EXPECT_THAT(spec.data().paths(), testing::ElementsAre("/x", "/y"));
  EXPECT_EQ(spec.model().directory(), "/m");
  EXPECT_FALSE(spec.model().has_random());
  EXPECT_EQ(spec.labels().at("new"), "yes");
  EXPECT_EQ(spec.labels().at("on"), "010");
  EXPECT_THAT(std::string(SetMessageField("optimizer.lr", "1", "--set", &spec).message()),
              HasSubstr("optimizer.lr: unknown key"));
  EXPECT_FALSE(SetMessageField("", "1", "--set", &spec).ok());
  EXPECT_FALSE(SetMessageField(std::string(100, '.'), "1", "--set", &spec).ok());
  // A message could not be sent with them.
  for (const auto& [path, value] :
       {std::pair{"seed\xe9", "1"}, std::pair{"display_name", "caf\xe9"},
        std::pair{"display_name", "\x01"}, std::pair{"data.paths", "[\xe9]"}}) {
    const v1::JobSpec before = spec;
    const absl::Status refused = SetMessageField(path, value, "--set", &spec);
    EXPECT_EQ(ReasonOf(refused), reason::kSpecInvalid) << refused;
    EXPECT_EQ(refused.message().find('\xe9'), std::string::npos) << refused;
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(spec, before));
  }
}

// The parser's own words about the place end in the middle of a character.
TEST(MessageFileTest, ErrorsAboutBrokenJsonAreText) {
  v1::JobSpec spec;
  for (const std::string& text :
       {std::string("{\"seed\": \u65e5}"), std::string("{\"seed\": 1, \u00e9"),
        std::string("{\"seed\"\ufeff: 1}")}) {
    const absl::Status refused = ParseMessageText(text, "job.json", &spec);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("not JSON"));
    EXPECT_EQ(FindInvalidUtf8(std::string(refused.message())), std::string::npos) << refused;
  }
}

class MessageFileOnDiskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/penstock-message-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

TEST_F(MessageFileOnDiskTest, ReadsRegularFilesOnly) {
  v1::JobSpec spec;
  const std::string path = directory_ + "/job.yaml";
  EXPECT_EQ(ReadMessageFile(path, &spec).code(), absl::StatusCode::kNotFound);
  std::ofstream(path) << "\xEF\xBB\xBFseed: 7\r\n";
  ASSERT_TRUE(ReadMessageFile(path, &spec).ok());
  EXPECT_EQ(spec.seed(), 7u);
  EXPECT_THAT(std::string(ReadMessageFile(directory_, &spec).message()),
              HasSubstr("not a regular file"));
  ASSERT_EQ(mkfifo((directory_ + "/fifo").c_str(), 0600), 0);
  EXPECT_THAT(std::string(ReadMessageFile(directory_ + "/fifo", &spec).message()),
              HasSubstr("not a regular file"));
  EXPECT_FALSE(ReadMessageFile("/dev/zero", &spec).ok());
}

}  // namespace
}  // namespace penstock
