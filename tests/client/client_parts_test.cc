#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/completion.h"
#include "client/data_text.h"
#include "client/endpoint.h"
#include "client/exit_code.h"
#include "client/job_file.h"
#include "client/job_text.h"
#include "client/output.h"
#include "client/progress.h"
#include "client/rpc_client.h"
#include "client/slurm.h"
#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/access/method_table.h"
#include "tests/server/public_methods.h"

namespace penstock::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TempDirTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/penstock-client-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = std::filesystem::canonical(pattern).string();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name) << text;
  }
  std::string directory_;
};

GetEnvironment Environment(std::map<std::string, std::string> values) {
  return [values](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  };
}

using EndpointTest = TempDirTest;

TEST_F(EndpointTest, IsFoundInTheDocumentedOrder) {
  Write("endpoint.json", "{\"socket\": \"/run/from-file.sock\", \"tcp_address\": \"127.0.0.1:1\"}");
  std::map<std::string, std::string> all{{"PENSTOCK_ENDPOINT", "127.0.0.1:7070"},
                                         {"PENSTOCK_ENDPOINT_FILE", directory_ + "/endpoint.json"},
                                         {"XDG_STATE_HOME", "/state"},
                                         {"HOME", "/home/u"}};
  EXPECT_EQ(FindEndpoint("/flag.sock", Environment(all))->target, "unix:/flag.sock");
  EXPECT_EQ(FindEndpoint("", Environment(all))->target, "127.0.0.1:7070");
  all.erase("PENSTOCK_ENDPOINT");
  EXPECT_EQ(FindEndpoint("", Environment(all))->target, "unix:/run/from-file.sock");
  all.erase("PENSTOCK_ENDPOINT_FILE");
  EXPECT_EQ(FindEndpoint("", Environment(all))->target, "unix:/state/penstock/penstock.sock");
  all.erase("XDG_STATE_HOME");
  EXPECT_EQ(FindEndpoint("", Environment(all))->target,
            "unix:/home/u/.local/state/penstock/penstock.sock");
  all.erase("HOME");
  EXPECT_FALSE(FindEndpoint("", Environment(all)).ok());
}

TEST_F(EndpointTest, HttpsMeansTls) {
  const auto found = FindEndpoint("https://lab-box:7070", Environment({}));
  EXPECT_EQ(found->target, "lab-box:7070");
  EXPECT_TRUE(found->tls);
  EXPECT_FALSE(FindEndpoint("lab-box:7070", Environment({}))->tls);
  Write("tls.json", "{\"socket\": \"\", \"tcp_address\": \"127.0.0.1:1\", \"tls\": true}");
  EXPECT_TRUE(
      FindEndpoint("", Environment({{"PENSTOCK_ENDPOINT_FILE", directory_ + "/tls.json"}}))->tls);
}

TEST_F(EndpointTest, BadOnesAreRefusedByName) {
  for (const char* text : {"localhost", ":7070", "host:0", "host:99999", "host:x", "unix:relative",
                           "a/b:1", "http://h:1", "https://h", "https://"}) {
    EXPECT_THAT(std::string(FindEndpoint(text, Environment({})).status().message()),
                AllOf(HasSubstr("--endpoint"), HasSubstr(text)));
  }
  const auto missing =
      FindEndpoint("", Environment({{"PENSTOCK_ENDPOINT_FILE", directory_ + "/none"}}));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  for (const char* text : {"", "{", "[]", "{\"socket\": 3}", "{\"tcp_address\": \"\"}"}) {
    Write("bad.json", text);
    EXPECT_FALSE(
        FindEndpoint("", Environment({{"PENSTOCK_ENDPOINT_FILE", directory_ + "/bad.json"}})).ok())
        << text;
  }
}

using JobFileTest = TempDirTest;

TEST_F(JobFileTest, PathsOfAFileAreRelativeToIt) {
  Write("job.yaml",
        "model: {random: {config_path: config.json}}\n"
        "data: {paths: [text/a.txt, /abs/b.txt, ../c.txt]}\n"
        "evaluation: {validation_paths: [v.txt]}\n"
        "output: {directory: out}\n");
  const auto spec = LoadJobFile(directory_ + "/job.yaml", {"schedule.max_steps=1e3"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model().random().config_path(), directory_ + "/config.json");
  const std::string parent = std::filesystem::path(directory_).parent_path().string();
  EXPECT_THAT(spec->data().paths(),
              testing::ElementsAre(directory_ + "/text/a.txt", "/abs/b.txt", parent + "/c.txt"));
  EXPECT_THAT(spec->evaluation().validation_paths(), testing::ElementsAre(directory_ + "/v.txt"));
  EXPECT_EQ(spec->output().directory(), directory_ + "/out");
  EXPECT_EQ(spec->schedule().max_steps(), 1000);
}

TEST_F(JobFileTest, PathsOfSettingsAreRelativeToTheWorkingDirectory) {
  Write("job.yaml", "model: {directory: m}\n");
  const auto spec = LoadJobFile(directory_ + "/job.yaml", {"output.directory=out"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model().directory(), directory_ + "/m");
  EXPECT_EQ(spec->output().directory(), (std::filesystem::current_path() / "out").string());
  EXPECT_FALSE(spec->has_data());
}

TEST_F(JobFileTest, BadSettingsAreRefused) {
  for (const char* setting : {"seed", "=1", "sead=1", "seed=x", "data.paths=/one"}) {
    EXPECT_THAT(std::string(LoadJobFile("", {setting}).status().message()), HasSubstr("--set"))
        << setting;
  }
}

TEST(ExitCodeTest, FollowsReasonThenCode) {
  const auto of = [](absl::StatusCode code, std::string_view reason) {
    return ExitCodeOf(Error(code, reason, "x"));
  };
  using absl::StatusCode;
  EXPECT_EQ(of(StatusCode::kInvalidArgument, reason::kSpecInvalid), ExitCode::kBadSpec);
  EXPECT_EQ(of(StatusCode::kNotFound, reason::kModelInvalid), ExitCode::kBadSpec);
  EXPECT_EQ(of(StatusCode::kNotFound, reason::kJobNotFound), ExitCode::kNotFound);
  EXPECT_EQ(of(StatusCode::kPermissionDenied, reason::kPathNotAllowed), ExitCode::kPermission);
  EXPECT_EQ(of(StatusCode::kResourceExhausted, reason::kHostMemoryInsufficient),
            ExitCode::kNeverFits);
  EXPECT_EQ(of(StatusCode::kResourceExhausted, reason::kQueueFull), ExitCode::kTryAgain);
  EXPECT_EQ(of(StatusCode::kUnavailable, reason::kServerDraining), ExitCode::kTryAgain);
  EXPECT_EQ(of(StatusCode::kUnavailable, reason::kServerUnreachable), ExitCode::kUnreachable);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("x")), ExitCode::kTimedOut);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("x")), ExitCode::kInternal);
}

TEST(ExitCodeTest, OfJobs) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(ExitCodeOf(job), ExitCode::kOk);
  job.set_state(v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(ExitCodeOf(job), ExitCode::kCancelled);
  job.set_state(v1::JOB_STATE_FAILED);
  job.set_failure_class(v1::FAILURE_CLASS_DATA);
  EXPECT_EQ(ExitCodeOf(job), ExitCode::kFailed);
  job.set_failure_class(v1::FAILURE_CLASS_SERVER);
  EXPECT_EQ(ExitCodeOf(job), ExitCode::kInternal);
}

TEST(ExitCodeTest, HelpListsEveryCode) {
  for (const int code : {0, 1, 2, 3, 4, 5, 6, 10, 70, 75, 78, 124, 130}) {
    EXPECT_THAT(ExitCodeHelp(), HasSubstr(absl::StrCat("\n  ", code, " ")));
  }
}

TEST(OutputTest, TablesAlign) {
  Table table({"NAME", "STEP"});
  table.Add({"jobs/a", "5"});
  table.Add({"jobs/long-name", "100"});
  EXPECT_EQ(table.ToText(),
            "NAME            STEP\n"
            "jobs/a             5\n"
            "jobs/long-name   100\n");
}

TEST(OutputTest, ControlCharactersDoNotReachTheTerminal) {
  EXPECT_EQ(Printable("a\x1b[31mb\nc\td"), "a?[31mb?c\td");
  v1::ListJobsResponse response;
  response.add_jobs()->mutable_train()->set_display_name("\x1b]0;title\x07");
  EXPECT_THAT(JobsTable(response.jobs()), Not(HasSubstr("\x1b")));
}

TEST(JobPageTest, SaysWhoseItIs) {
  v1::Job job;
  job.set_name("jobs/a");
  job.set_owner("ann");
  EXPECT_THAT(JobPage(job), HasSubstr("Owner:  ann\n"));
}

// What is repeated after a lost reply: all that may be, and nothing else. A new call has to be told
// which it is.
TEST(RpcClientTest, WhatMayBeDoneTwiceIsRepeated) {
  const std::set<std::string> harmless = {"ReleaseDevice", "DrainServer", "RevokeToken"};
  std::set<std::string> expected;
  for (const auto* method : server::PublicMethods()) {
    if (method->client_streaming() || method->server_streaming()) continue;
    const std::string name = server::FullName(*method);
    const bool once = method->input_type()->FindFieldByName("request_id") != nullptr;
    const bool reads = server::FindRule(name)->effect == server::Effect::kReads;
    const bool slow = method->name() == "InspectData";
    if (once || (reads && !slow) || harmless.contains(method->name())) expected.insert(name);
  }
  std::set<std::string> repeated;
  const auto config = nlohmann::json::parse(ServiceConfigJson());
  for (const auto& name : config["methodConfig"][0]["name"]) {
    repeated.insert(name.at("service").get<std::string>() + "/" +
                    name.at("method").get<std::string>());
  }
  EXPECT_EQ(repeated, expected);
}

TEST(OutputTest, NumbersForPeople) {
  EXPECT_EQ(FormatDuration(0.2), "0s");
  EXPECT_EQ(FormatDuration(187), "3m07s");
  EXPECT_EQ(FormatDuration(3720), "1h02m");
  EXPECT_EQ(FormatDuration(-1), "-");
  EXPECT_EQ(FormatDuration(std::numeric_limits<double>::quiet_NaN()), "-");
  EXPECT_EQ(FormatCount(812), "812");
  EXPECT_EQ(FormatCount(34'500), "34.5k");
  EXPECT_EQ(FormatCount(1.2e6), "1.2M");
}

TEST(OutputTest, ErrorsSayReasonFixAndRequest) {
  const absl::Status status =
      Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid, "seed: wrong",
            {{"field", "seed"}, {"fix", "remove it"}, {"request_id", "r-1"}});
  EXPECT_EQ(FormatError(Format::kTable, status),
            "error: seed: wrong\n  reason: SPEC_INVALID\n  fix: remove it\n  request_id: r-1\n");
  const auto json = nlohmann::json::parse(FormatError(Format::kJson, status));
  EXPECT_EQ(json["code"], 3);
  EXPECT_EQ(json["details"][0]["reason"], "SPEC_INVALID");
  EXPECT_EQ(json["details"][0]["domain"], "penstock");
  EXPECT_EQ(json["details"][1]["fieldViolations"][0]["field"], "seed");
  EXPECT_THAT(FormatError(Format::kYaml, status), HasSubstr("reason: SPEC_INVALID"));
}

TEST(OutputTest, StreamedJsonIsOneLineAMessage) {
  v1::WatchJobsResponse message;
  message.mutable_metrics()->set_step(3);
  const std::string text = FormatStreamed(Format::kJson, message);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(nlohmann::json::parse(text)["metrics"]["step"], "3");
}

TEST(ProgressTest, ShowsStepLossRateAndRemainingTime) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_RUNNING);
  v1::JobProgress& progress = *job.mutable_progress();
  progress.set_phase(v1::JOB_PHASE_TRAIN);
  progress.set_step(50);
  progress.set_total_steps(200);
  progress.set_loss(3.21421);
  progress.set_tokens_per_second(1234);
  progress.set_remaining_seconds(187);
  EXPECT_EQ(ProgressText(job, 200), "[###.........] step 50/200 loss 3.2142 1.2k tok/s ETA 3m07s");
  EXPECT_EQ(ProgressText(job, 10), "[###......");
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_queue_position(2);
  job.set_state_message("waits for the device");
  EXPECT_EQ(ProgressText(job, 200), "queued, position 2: waits for the device");
  job.set_state(v1::JOB_STATE_STARTING);
  progress.set_phase(v1::JOB_PHASE_DATA);
  progress.set_phase_fraction(0.5);
  EXPECT_EQ(ProgressText(job, 200), "starting: data [######......]");
}

TEST(RpcClientTest, RequestIdsAreUuidsAndDiffer) {
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) {
    const std::string id = NewRequestId();
    EXPECT_THAT(id, testing::MatchesRegex(
                        "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 100u);
}

TEST(RpcClientTest, NobodyThereIsUnreachable) {
  RpcClient client({.target = "unix:/nonexistent/penstock.sock", .source = "a test"},
                   absl::Seconds(10));
  const absl::Status status = client.GetJob("jobs/x").status();
  EXPECT_EQ(ReasonOf(status), reason::kServerUnreachable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/penstock.sock"));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUnreachable);
}

class CompletionTest : public TempDirTest {
 protected:
  // The `words` that bash offers for the last word of this line.
  int BashOffers(const std::string& line, const std::string& words) {
    Write("test.sh", absl::StrCat("source ", directory_, "/completion\n", "COMP_WORDS=(", line,
                                  ") COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _penstock\n",
                                  "[[ ${COMPREPLY[*]} == '", words, "' ]]\n"));
    return std::system(absl::StrCat("bash ", directory_, "/test.sh").c_str());
  }

  const std::vector<CommandWords> commands_{{.name = "submit",
                                             .options = {"--follow", "--wait", "-q"},
                                             .subcommands = {},
                                             .argument = CommandWords::Argument::kFile},
                                            {.name = "show",
                                             .options = {"--help"},
                                             .subcommands = {},
                                             .argument = CommandWords::Argument::kJob},
                                            {.name = "context",
                                             .options = {"--help"},
                                             .subcommands = {"add", "use"},
                                             .argument = CommandWords::Argument::kContext}};
  const std::vector<std::string> valued_{"--endpoint", "-o", "--output"};
};

TEST_F(CompletionTest, ScriptsHaveEveryCommandAndParse) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const std::string script = CompletionScript(shell, commands_, valued_);
    EXPECT_THAT(script, AllOf(HasSubstr("submit"), HasSubstr("show"), HasSubstr("follow"),
                              HasSubstr("penstock completion --jobs"),
                              HasSubstr("penstock completion --contexts")));
    Write(shell, script);
  }
  EXPECT_EQ(std::system(absl::StrCat("bash -n ", directory_, "/bash").c_str()), 0);
}

TEST_F(CompletionTest, BashOffersCommandsAndOptions) {
  Write("completion", CompletionScript("bash", commands_, valued_));
  EXPECT_EQ(BashOffers("penstock sub", "submit"), 0);
  EXPECT_EQ(BashOffers("penstock -q submit --fo", "--follow"), 0);
  EXPECT_EQ(BashOffers("penstock --endpoint /s submit --w", "--wait"), 0)
      << "the value of an option is no command";
  EXPECT_EQ(BashOffers("penstock -o j", "json"), 0);
  EXPECT_EQ(BashOffers("penstock context ''", "add use"), 0);
}

TEST(PlanMissedTest, SaysByHowMuch) {
  v1::PlanMissed missed;
  missed.set_step(10);
  missed.set_measured_step_seconds(1.3);
  missed.set_predicted_step_seconds(1);
  missed.set_machine_profile("h100-80gb-pcie5 (measured)");
  EXPECT_EQ(
      PlanMissedText(missed),
      "not as planned up to step 10: steps take 1.3 s, 30% more than the 1 s predicted by the "
      "rates of h100-80gb-pcie5 (measured)");
  missed.set_host_peak_bytes(int64_t{3} << 30);
  missed.set_planned_host_peak_bytes(int64_t{2} << 30);
  EXPECT_THAT(PlanMissedText(missed), HasSubstr("; 3.0 GiB of host memory, 2.0 GiB planned"));
}

TEST(PlanPageTest, SaysHowFastAndWhyAndTheRestOnlyWhenAsked) {
  v1::JobPlan plan;
  plan.set_policy("weights streamed, inputs saved");
  plan.set_predicted_step_seconds(1.64);
  plan.set_predicted_tokens_per_second(9990);
  plan.set_machine_profile("h100-80gb-pcie5 (measured)");
  plan.set_bottleneck("AdamW on the host");
  plan.set_rounding("micro-batches of 8192 tokens");
  v1::PlanAlternative& other = *plan.add_runners_up();
  other.set_choice("weights resident");
  other.set_effect("4.1% slower");
  v1::PlanAlternative& setting = *plan.add_settings();
  setting.set_choice("batch.tokens_per_step: 65536");
  setting.set_effect("+38% tokens/s");
  const std::string page = PlanPage(plan, /*explain=*/false);
  EXPECT_THAT(page, AllOf(HasSubstr("weights streamed, inputs saved"), HasSubstr("1.64 s a step"),
                          HasSubstr("h100-80gb-pcie5 (measured)"), HasSubstr("AdamW on the host"),
                          HasSubstr("micro-batches of 8192 tokens"),
                          HasSubstr("batch.tokens_per_step: 65536 (+38% tokens/s)")));
  EXPECT_THAT(page, Not(HasSubstr("4.1% slower")));
  EXPECT_THAT(PlanPage(plan, /*explain=*/true), HasSubstr("weights resident: 4.1% slower"));
  v1::JobEstimate& estimate = *plan.mutable_estimate();
  estimate.set_steps(1000);
  estimate.set_seconds(3661);
  estimate.set_energy_joules(3.6e6);
  v1::PhasePlan& resume = *plan.add_phases();
  resume.set_name("resume");
  resume.set_host_bytes(int64_t{3} << 30);
  EXPECT_THAT(PlanPage(plan, false),
              AllOf(HasSubstr("1000 steps in 1h01m, about 1 kWh"), Not(HasSubstr("resume: "))));
  EXPECT_THAT(PlanPage(plan, true), HasSubstr("resume: 3.0 GiB of host memory"));
}

v1::InspectDataResponse SomeData() {
  v1::InspectDataResponse data;
  data.set_documents(2);
  data.set_tokens(200);
  data.set_learned_tokens(50);
  data.set_rows_per_epoch(3);
  data.set_padding_fraction(0.125);
  data.add_setup("tokenizer: bytes");
  v1::LengthBucket& bucket = *data.add_lengths();
  bucket.set_up_to_tokens(128);
  bucket.set_documents(2);
  v1::DataNotes& notes = *data.add_notes();
  notes.set_kind(v1::DATA_NOTE_KIND_TOO_LONG);
  notes.set_count(5);
  v1::DataNote& note = *notes.add_first();
  note.set_location("/a.jsonl:3:1");
  note.set_text("2100 tokens, 2048 are allowed");
  v1::DataExample& example = *data.add_examples();
  example.set_location("/a.jsonl:1");
  example.set_tokens(4);
  example.set_learned_tokens(2);
  v1::DataExample::Segment& prompt = *example.add_segments();
  prompt.set_text("q\x1b[2J\n");
  prompt.add_ids(11);
  v1::DataExample::Segment& answer = *example.add_segments();
  answer.set_learned(true);
  answer.set_text("a");
  answer.add_ids(12);
  answer.add_ids(13);
  return data;
}

TEST(DataPageTest, SaysWhatIsLearnedAndWhatIsLeftOut) {
  const std::string page = DataPage(SomeData(), {});
  for (const char* part :
       {"50 (25.0% of the tokens)", "3, 12.5% padding", "bytes", "up to      128         2  ####",
        "5 rows left out because they are too long", "/a.jsonl:3:1: 2100 tokens", "and 4 more",
        "/a.jsonl:1: 4 tokens, 2 of them learned", "{+a+}"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  // What data say does not reach the terminal as a command.
  EXPECT_THAT(page, Not(HasSubstr("\x1b")));
}

TEST(DataPageTest, ShowsColorsAndIdsOnRequest) {
  const std::string page = DataPage(SomeData(), {.color = true, .ids = true});
  EXPECT_THAT(page, HasSubstr("\x1b[32ma\x1b[0m"));
  EXPECT_THAT(page, Not(HasSubstr("{+")));
  EXPECT_THAT(page, AllOf(HasSubstr("[11]"), HasSubstr("[12 13]")));
}

TEST(SlurmTest, AnElementOfAnArrayIsNamedAsOne) {
  const auto id = [](std::map<std::string, std::string> variables) {
    return SlurmJobId([variables](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      if (found == variables.end()) return std::nullopt;
      return found->second;
    });
  };
  EXPECT_EQ(id({}), std::nullopt);
  EXPECT_EQ(id({{"SLURM_JOB_ID", "123"}}), "123");
  // The last element of an array has the array's own number.
  EXPECT_EQ(
      id({{"SLURM_JOB_ID", "120"}, {"SLURM_ARRAY_JOB_ID", "120"}, {"SLURM_ARRAY_TASK_ID", "4"}}),
      "120_4");
  EXPECT_EQ(id({{"SLURM_JOB_ID", "1; reboot"}}), std::nullopt) << "it goes to a shell";
  EXPECT_EQ(id({{"SLURM_JOB_ID", ""}}), std::nullopt);
}

TEST(SlurmTest, TheStateIsFoundInWhatScontrolSays) {
  EXPECT_EQ(SlurmStateIn("JobId=1 JobName=a JobState=RUNNING Reason=None\n"), "RUNNING");
  EXPECT_EQ(SlurmStateIn("JobId=1 JobState=CANCELLED"), "CANCELLED");
  EXPECT_EQ(SlurmStateIn("slurm_load_jobs error: Invalid job id specified"), "");
  EXPECT_EQ(SlurmStateIn("JobId=1 JobState="), "");
}

}  // namespace
}  // namespace penstock::client
