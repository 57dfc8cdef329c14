// Jobs, streams and administration of a daemon.
#include "server/daemon.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <set>
#include <thread>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "server/lock_file.h"
#include "server/store/job_state.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/test_support.h"

namespace penstock::server {
namespace {

using std::chrono::milliseconds;
using testing::AnyOf;
using testing::HasSubstr;

struct Seen {
  std::vector<int64_t> steps;
  std::vector<std::string> lines;
  std::vector<uint64_t> sequences;
  std::vector<v1::JobState> states;
  int caught_up = 0;
  std::optional<v1::Job> end;
};
Seen Summarize(const std::vector<v1::WatchJobsResponse>& messages) {
  Seen seen;
  for (const auto& message : messages) {
    if (message.has_metrics()) seen.steps.push_back(message.metrics().step());
    for (const auto& line : message.log_lines().lines()) seen.lines.push_back(line);
    if (message.has_state_changed()) {
      seen.sequences.push_back(message.state_changed().sequence());
      seen.states.push_back(message.state_changed().job().state());
    }
    if (message.has_checkpoint_saved()) {
      seen.sequences.push_back(message.checkpoint_saved().sequence());
    }
    seen.caught_up += message.has_caught_up() ? 1 : 0;
    if (message.has_end()) seen.end = message.end().job();
  }
  return seen;
}
std::vector<int64_t> UpTo(int64_t last) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= last; ++step) steps.push_back(step);
  return steps;
}

TEST_F(DaemonTest, AJobRunsAndItsWatcherSeesEverythingOnceThenEnd) {
  Start();
  const std::string name = client_->Submit(
      {{"steps", "20"}, {"step_ms", "5"}, {"checkpoint_every", "10"}, {"log_lines", "50"}});
  const auto messages = ReadAll(*client_, Watch(name));
  const Seen seen = Summarize(messages);
  EXPECT_EQ(seen.steps, UpTo(20));
  EXPECT_EQ(seen.lines.size(), 50u);
  EXPECT_EQ(seen.states,
            (std::vector<v1::JobState>{v1::JOB_STATE_QUEUED, v1::JOB_STATE_STARTING,
                                       v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED}));
  EXPECT_EQ(seen.sequences, (std::vector<uint64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(seen.caught_up, 1);
  ASSERT_TRUE(seen.end);
  EXPECT_TRUE(messages.back().has_end());
  EXPECT_EQ(seen.end->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(seen.end->artifacts_size(), 2);
  EXPECT_EQ(client_->Get(name).progress().step(), 20);

  // Watched again after its end, and from a cursor in the middle.
  EXPECT_EQ(Summarize(ReadAll(*client_, Watch(name))).steps, UpTo(20));
  for (const size_t cut : {size_t{1}, messages.size() / 2, messages.size() - 1}) {
    v1::WatchJobsRequest rest = Watch(name);
    *rest.mutable_after() = messages[cut - 1].cursor();
    std::vector<v1::WatchJobsResponse> all(messages.begin(),
                                           messages.begin() + static_cast<int64_t>(cut));
    for (auto& message : ReadAll(*client_, rest)) all.push_back(std::move(message));
    const Seen joined = Summarize(all);
    EXPECT_EQ(joined.steps, UpTo(20));
    EXPECT_EQ(joined.lines.size(), 50u);
    EXPECT_EQ(joined.sequences, seen.sequences);
  }
}

TEST_F(DaemonTest, CursorsOfAnotherDatabaseAreExpired) {
  Start();
  const std::string name = client_->Submit({});
  client_->WaitForEnd(name);
  for (const auto set :
       {+[](v1::Cursor* c) { c->set_event(1000); }, +[](v1::Cursor* c) { c->set_metric(1000); },
        +[](v1::Cursor* c) { c->set_log_attempt(9); },
        +[](v1::Cursor* c) {
          c->set_log_attempt(1);
          c->set_log_offset(1 << 20);
        }}) {
    v1::WatchJobsRequest request = Watch(name);
    set(request.mutable_after());
    grpc::Status status;
    ReadAll(*client_, request, &status);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
    EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kCursorExpired);
  }
}

TEST_F(DaemonTest, ErrorsCarryReasonFieldAndWayOut) {
  Start();
  v1::Job job;
  v1::CreateJobRequest request;
  request.mutable_spec()->set_display_name("bad");
  grpc::Status status = client_->Create(request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kSpecInvalid);
  EXPECT_EQ(ErrorInfoOf(status).domain(), "penstock");
  EXPECT_TRUE(HasDetail<google::rpc::BadRequest>(status));

  request = MakeRequest({{"host_bytes", std::to_string(kHostBytes + 1)}});
  status = client_->Create(request, &job);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kHostMemoryInsufficient);
  EXPECT_EQ(ErrorInfoOf(status).metadata().at("limit_source"), "test");

  request = MakeRequest({});
  request.set_job_id("../../etc");
  EXPECT_EQ(ErrorInfoOf(client_->Create(request, &job)).reason(), reason::kRequestInvalid);

  grpc::ClientContext context;
  v1::GetJobRequest get;
  get.set_name("jobs/nobody");
  v1::GetJobResponse response;
  status = client_->jobs->GetJob(&context, get, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kJobNotFound);
}

TEST_F(DaemonTest, DataAreInspectedInTheJobsTokenCacheUntilNobodyWaits) {
  Start();
  v1::InspectDataRequest request;
  request.set_examples(7);
  grpc::ClientContext context;
  v1::InspectDataResponse response;
  ASSERT_TRUE(client_->jobs->InspectData(&context, request, &response).ok());
  EXPECT_EQ(response.documents(), 7);
  EXPECT_THAT(response.setup(0), HasSubstr("/token_cache"));

  request.set_examples(21);
  grpc::ClientContext refused;
  const grpc::Status status = client_->jobs->InspectData(&refused, request, &response);
  EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kRequestInvalid);
  EXPECT_EQ(ErrorInfoOf(status).metadata().at("field"), "examples");

  // One that is given up does not keep the next from its turn.
  request.set_examples(1);
  (*request.mutable_spec()->mutable_labels())["endless"] = "1";
  grpc::ClientContext abandoned;
  abandoned.set_deadline(std::chrono::system_clock::now() + milliseconds(100));
  // Whichever of the two ends sees it first.
  EXPECT_THAT(client_->jobs->InspectData(&abandoned, request, &response).error_code(),
              AnyOf(grpc::StatusCode::DEADLINE_EXCEEDED, grpc::StatusCode::CANCELLED));
  request.clear_spec();
  grpc::ClientContext next;
  EXPECT_TRUE(client_->jobs->InspectData(&next, request, &response).ok());
}

TEST_F(DaemonTest, BuildingDataSaysHowFarItIs) {
  Start();
  v1::BuildDataRequest request;
  grpc::ClientContext context;
  const auto reader = client_->jobs->BuildData(&context, request);
  v1::BuildDataResponse message;
  double fraction = 0;
  int messages = 0;
  while (reader->Read(&message) && message.has_fraction()) {
    EXPECT_GT(message.fraction(), fraction);
    fraction = message.fraction();
    ++messages;
  }
  EXPECT_GT(messages, 0);
  EXPECT_LE(fraction, 1);
  ASSERT_TRUE(message.has_result());
  EXPECT_THAT(message.result().setup(0), HasSubstr("/token_cache"));
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_TRUE(reader->Finish().ok());

  (*request.mutable_spec()->mutable_labels())["broken"] = "1";
  grpc::ClientContext refused;
  const auto broken = client_->jobs->BuildData(&refused, request);
  while (broken->Read(&message)) EXPECT_FALSE(message.has_result());
  EXPECT_EQ(ErrorInfoOf(broken->Finish()).reason(), reason::kDataInvalid);
}

// It makes room for the next, whether its client reads or not.
TEST_F(DaemonTest, ABuildThatIsGivenUpEnds) {
  Start();
  v1::BuildDataRequest request;
  (*request.mutable_spec()->mutable_labels())["endless"] = "1";
  grpc::ClientContext abandoned;
  const auto reader = client_->jobs->BuildData(&abandoned, request);
  v1::BuildDataResponse message;
  ASSERT_TRUE(reader->Read(&message));
  abandoned.TryCancel();
  grpc::ClientContext next;
  v1::InspectDataResponse response;
  EXPECT_TRUE(client_->jobs->InspectData(&next, {}, &response).ok());
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(DaemonTest, ValidateOnlyChangesNothing) {
  Start();
  v1::CreateJobRequest request = MakeRequest({});
  request.set_validate_only(true);
  v1::Job job;
  ASSERT_TRUE(client_->Create(request, &job).ok());
  EXPECT_TRUE(job.name().empty());
  EXPECT_GT(job.plan().host_peak_bytes(), 0);
  grpc::ClientContext context;
  v1::ListJobsResponse list;
  ASSERT_TRUE(client_->jobs->ListJobs(&context, {}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 0);
}

TEST_F(DaemonTest, APlanIsNoJobAndIsHeldToTheDaemonsLimitOnlyHere) {
  Start();
  const auto plan = [&](const Labels& labels, const std::string& machine, bool details,
                        v1::PlanJobResponse& response) {
    v1::PlanJobRequest request;
    *request.mutable_spec() = MakeRequest(labels).spec();
    request.set_machine(machine);
    request.set_with_program(details);
    request.set_with_trace(details);
    grpc::ClientContext context;
    return client_->jobs->PlanJob(&context, request, &response);
  };
  const Labels large = {{"host_bytes", std::to_string(2 * kHostBytes)}};
  v1::PlanJobResponse response;
  ASSERT_TRUE(plan({}, "", false, response).ok());
  EXPECT_EQ(response.plan().host_peak_bytes(), 1 << 20);
  EXPECT_TRUE(response.step_program().empty() && response.step_trace().empty());
  ASSERT_TRUE(plan({}, "", true, response).ok());
  EXPECT_EQ(response.step_program().size(), static_cast<size_t>(kFakeProgramBytes));
  EXPECT_EQ(response.step_trace(), "[]");
  // BC-01: refused with the numbers and the limit that binds.
  const google::rpc::ErrorInfo refused = ErrorInfoOf(plan(large, "", false, response));
  EXPECT_EQ(refused.reason(), reason::kHostMemoryInsufficient);
  EXPECT_EQ(refused.metadata().at("needed_bytes"), std::to_string(2 * kHostBytes));
  EXPECT_EQ(refused.metadata().at("limit_source"), "test");
  ASSERT_TRUE(plan(large, "h200-1.5tb", false, response).ok());
  EXPECT_EQ(response.warnings(0), "for h200-1.5tb");
  grpc::ClientContext context;
  v1::ListJobsResponse list;
  ASSERT_TRUE(client_->jobs->ListJobs(&context, {}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 0);
}

TEST_F(DaemonTest, APlanThatTakesLongHoldsUpNobodyElsesSubmit) {
  std::promise<void> begun, release;
  options_.planner = [&, plan = options_.planner](const v1::PlanJobRequest& request, PlanUse use) {
    // Advice takes longer than the plan, and nobody asks for it who submits.
    EXPECT_EQ(use == PlanUse::kAdvise, request.spec().labels().contains("slow"));
    if (request.spec().labels().contains("slow")) {
      begun.set_value();
      release.get_future().wait();
    }
    return plan(request, use);
  };
  Start();
  auto slow = std::async(std::launch::async, [&] {
    grpc::ClientContext context;
    v1::PlanJobRequest request;
    *request.mutable_spec() = MakeRequest({{"slow", ""}}).spec();
    v1::PlanJobResponse response;
    return client_->jobs->PlanJob(&context, request, &response);
  });
  begun.get_future().wait();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::CreateJobResponse created;
  const grpc::Status status = client_->jobs->CreateJob(&context, MakeRequest({}), &created);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(slow.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  release.set_value();
  EXPECT_TRUE(slow.get().ok());
}

TEST_F(DaemonTest, ADeviceIsMeasuredAloneAndItsProfileHoldsForThisMachineOnly) {
  Start();
  v1::CalibrateDeviceResponse response;
  const auto calibrate = [&](const std::string& id) {
    v1::CalibrateDeviceRequest request;
    request.set_id(id);
    grpc::ClientContext context;
    return client_->admin->CalibrateDevice(&context, request, &response);
  };
  EXPECT_EQ(ErrorInfoOf(calibrate("GPU-none")).metadata().at("field"), "id");
  const std::string job = client_->Submit({{"steps", "100000"}, {"step_ms", "20"}});
  client_->WaitForState(job, v1::JOB_STATE_RUNNING);
  const google::rpc::ErrorInfo busy = ErrorInfoOf(calibrate("cpu"));
  EXPECT_EQ(busy.reason(), reason::kDeviceBusy);
  EXPECT_EQ(busy.metadata().at("job"), job);
  v1::CancelJobRequest cancel;
  cancel.set_name(job);
  v1::CancelJobResponse cancelled;
  grpc::ClientContext context;
  ASSERT_TRUE(client_->jobs->CancelJob(&context, cancel, &cancelled).ok());
  client_->WaitForEnd(job);

  ASSERT_TRUE(calibrate("cpu").ok());
  EXPECT_EQ(response.profile().device(), "cpu");
  EXPECT_EQ(response.profile().identity(), "this cpu");
  v1::Device cpu;
  cpu.set_id("cpu");
  EXPECT_EQ(options_.profiles->Find(cpu).json, "this cpu");
  EXPECT_TRUE(options_.profiles->Find(cpu).warning.empty());
  // Jobs start again.
  EXPECT_EQ(client_->WaitForEnd(client_->Submit({{"steps", "1"}})).state(),
            v1::JOB_STATE_SUCCEEDED);

  // Measured on another machine, or no profile at all: named, and not used.
  const std::string path = options_.profiles->PathOf(cpu);
  ASSERT_TRUE(WriteFileDurably(path, "that cpu").ok());
  ProfileStore::Found found = options_.profiles->Find(cpu);
  EXPECT_TRUE(found.json.empty());
  EXPECT_THAT(found.warning,
              testing::AllOf(testing::HasSubstr("\"that cpu\""), testing::HasSubstr("\"this cpu\""),
                             testing::HasSubstr("penstock calibrate")));
  ASSERT_TRUE(WriteFileDurably(path, "broken").ok());
  EXPECT_THAT(options_.profiles->Find(cpu).warning, testing::HasSubstr(path + ": broken"));
  std::filesystem::remove(path);
  EXPECT_TRUE(options_.profiles->Find(cpu).warning.empty());
}

TEST_F(DaemonTest, OneRequestIdMakesOneJobAlsoFromFiftyThreadsAndAcrossARestart) {
  Start();
  v1::CreateJobRequest request = MakeRequest({{"steps", "2"}});
  request.set_request_id("5f0c");
  std::vector<std::string> names(50);
  {
    std::vector<std::jthread> threads;
    for (std::string& name : names) {
      threads.emplace_back([&] {
        v1::Job job;
        const grpc::Status status = client_->Create(request, &job);
        name = status.ok() ? job.name() : status.error_message();
      });
    }
  }
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 1u) << names[0];
  client_->WaitForEnd(names[0]);
  Restart();
  v1::Job job;
  ASSERT_TRUE(client_->Create(request, &job).ok());
  EXPECT_EQ(job.name(), names[0]);
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);  // the first reply, not the state now
  request.set_job_id("another-one");
  const grpc::Status reused = client_->Create(request, &job);
  EXPECT_EQ(reused.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(ErrorInfoOf(reused).reason(), reason::kRequestIdReused);
}

TEST_F(DaemonTest, ListsComeInPagesNewestFirst) {
  Start();
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) names.push_back(client_->Submit({{"steps", "1"}}));
  for (const std::string& name : names) client_->WaitForEnd(name);
  std::vector<std::string> listed;
  v1::ListJobsRequest request;
  request.set_page_size(2);
  int pages = 0;
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse page;
    ASSERT_TRUE(client_->jobs->ListJobs(&context, request, &page).ok());
    for (const v1::Job& job : page.jobs()) listed.push_back(job.name());
    request.set_page_token(page.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  std::reverse(names.begin(), names.end());
  EXPECT_EQ(listed, names);
  EXPECT_EQ(pages, 3);

  grpc::ClientContext first, second;
  v1::ListJobsResponse page;
  request.set_page_token("");
  ASSERT_TRUE(client_->jobs->ListJobs(&first, request, &page).ok());
  request.set_page_token(page.next_page_token());
  request.add_states(v1::JOB_STATE_FAILED);
  EXPECT_EQ(client_->jobs->ListJobs(&second, request, &page).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

grpc::Status Cancel(Client& client, const std::string& name, v1::Job* job = nullptr) {
  grpc::ClientContext context;
  v1::CancelJobRequest request;
  request.set_name(name);
  v1::CancelJobResponse response;
  const grpc::Status status = client.jobs->CancelJob(&context, request, &response);
  if (job != nullptr) *job = response.job();
  return status;
}

TEST_F(DaemonTest, CancelEndsQueuedJobsAtOnceAndRunningOnesWithTheirWorker) {
  Start();
  const std::string running = client_->Submit({{"steps", "100000"}, {"step_ms", "5"}});
  client_->WaitForState(running, v1::JOB_STATE_RUNNING);
  const std::string queued = client_->Submit({});
  const v1::Job waiting = client_->Get(queued);
  EXPECT_EQ(waiting.state_reason(), v1::STATE_REASON_DEVICE_BUSY);
  EXPECT_EQ(waiting.queue_position(), 1);
  EXPECT_THAT(waiting.state_message(), HasSubstr(running));
  v1::Job job;
  ASSERT_TRUE(Cancel(*client_, queued, &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLED);
  ASSERT_TRUE(Cancel(*client_, running, &job).ok());
  EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLING);
  EXPECT_EQ(client_->WaitForEnd(running).state(), v1::JOB_STATE_CANCELLED);
  const grpc::Status again = Cancel(*client_, running);
  EXPECT_EQ(ErrorInfoOf(again).reason(), reason::kJobStateConflict);
}

TEST_F(DaemonTest, DeleteTakesEndedJobsAndTheirFilesOnly) {
  Start();
  const std::string running = client_->Submit({{"steps", "100000"}, {"step_ms", "5"}});
  client_->WaitForState(running, v1::JOB_STATE_RUNNING);
  const auto remove = [&](const std::string& name) {
    grpc::ClientContext context;
    v1::DeleteJobRequest request;
    request.set_name(name);
    v1::DeleteJobResponse response;
    return client_->jobs->DeleteJob(&context, request, &response);
  };
  EXPECT_EQ(ErrorInfoOf(remove(running)).reason(), reason::kJobStateConflict);
  ASSERT_TRUE(Cancel(*client_, running).ok());
  client_->WaitForEnd(running);
  EXPECT_EQ(access((directory_.state() + "/" + running).c_str(), F_OK), 0);
  EXPECT_TRUE(remove(running).ok());
  EXPECT_NE(access((directory_.state() + "/" + running).c_str(), F_OK), 0);
  EXPECT_EQ(ErrorInfoOf(remove(running)).reason(), reason::kJobNotFound);
}

TEST_F(DaemonTest, AFullQueueRefusesWithRetryInfo) {
  options_.max_queued_jobs = 1;
  Start();
  const std::string running = client_->Submit({{"steps", "100000"}, {"step_ms", "5"}});
  client_->WaitForState(running, v1::JOB_STATE_RUNNING);
  client_->Submit({});
  v1::Job job;
  const grpc::Status full = client_->Create(MakeRequest({}), &job);
  EXPECT_EQ(full.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ErrorInfoOf(full).reason(), reason::kQueueFull);
  EXPECT_TRUE(HasDetail<google::rpc::RetryInfo>(full));
}

TEST_F(DaemonTest, TwoUnfinishedJobsNeverShareAnOutputDirectory) {
  Start();
  v1::CreateJobRequest request = MakeRequest({{"steps", "100000"}, {"step_ms", "5"}});
  request.mutable_spec()->mutable_output()->set_directory("/tmp/shared-output");
  v1::Job first, second;
  ASSERT_TRUE(client_->Create(request, &first).ok());
  const grpc::Status refused = client_->Create(request, &second);
  EXPECT_EQ(ErrorInfoOf(refused).reason(), reason::kOutputExists);
  EXPECT_THAT(refused.error_message(), HasSubstr(first.name()));
  grpc::ClientContext context;
  v1::CancelJobRequest cancel;
  v1::CancelJobResponse cancelled;
  cancel.set_name(first.name());
  ASSERT_TRUE(client_->jobs->CancelJob(&context, cancel, &cancelled).ok());
  client_->WaitForEnd(first.name());
  EXPECT_TRUE(client_->Create(request, &second).ok());
}

TEST_F(DaemonTest, ExportIsAJobOfItsOwn) {
  Start();
  const std::string name = client_->Submit({{"steps", "2"}, {"checkpoint_every", "2"}});
  client_->WaitForEnd(name);
  v1::ExportCheckpointRequest request;
  request.mutable_spec()->set_checkpoint(name + "/checkpoints/2");
  request.mutable_spec()->set_directory("/tmp/nowhere");
  request.set_request_id("once");
  v1::ExportCheckpointResponse response, again;
  grpc::ClientContext first, second, third;
  ASSERT_TRUE(client_->checkpoints->ExportCheckpoint(&first, request, &response).ok());
  ASSERT_TRUE(client_->checkpoints->ExportCheckpoint(&second, request, &again).ok());
  EXPECT_EQ(response.job().name(), again.job().name());
  EXPECT_EQ(client_->WaitForEnd(response.job().name()).state(), v1::JOB_STATE_SUCCEEDED);
  request.clear_request_id();
  request.mutable_spec()->set_checkpoint(name + "/checkpoints/3");
  EXPECT_EQ(ErrorInfoOf(client_->checkpoints->ExportCheckpoint(&third, request, &again)).reason(),
            reason::kCheckpointNotFound);
}

TEST_F(DaemonTest, AWorkerKilledByAnySignalFailsItsJobWithReasonAndLogAndTheNextJobRuns) {
  Start();
  unsigned seed = 7;
  for (const int number : {SIGKILL, SIGSEGV, SIGABRT, SIGBUS}) {
    const int at = 1 + rand_r(&seed) % 20;
    const std::string name = client_->Submit(
        {{"steps", "30"}, {"crash", std::to_string(number)}, {"crash_at", std::to_string(at)}});
    const std::string next = client_->Submit({{"steps", "2"}});
    const v1::Job failed = client_->WaitForEnd(name);
    EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
    EXPECT_EQ(failed.failure_class(), v1::FAILURE_CLASS_SERVER);
    EXPECT_THAT(failed.state_message(), HasSubstr(std::string("SIG") + sigabbrev_np(number)));
    ASSERT_GT(failed.last_log_lines_size(), 0);
    EXPECT_EQ(*failed.last_log_lines().rbegin(), "about to die at step " + std::to_string(at));
    EXPECT_EQ(client_->WaitForEnd(next).state(), v1::JOB_STATE_SUCCEEDED);
  }
}

TEST_F(DaemonTest, ADeadWorkersJobIsTriedAgainWhileAttemptsAreLeft) {
  Start();
  const std::string name = client_->Submit(
      {{"steps", "4"}, {"crash_at", "3"}, {"crash_attempts", "1"}}, /*max_attempts=*/2);
  const Seen seen = Summarize(ReadAll(*client_, Watch(name)));
  EXPECT_EQ(seen.end->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(seen.end->attempt(), 2);
  EXPECT_EQ(seen.steps, (std::vector<int64_t>{1, 2, 1, 2, 3, 4}));
  grpc::ClientContext context;
  v1::ListJobMetricsRequest request;
  request.set_name(name);
  v1::ListJobMetricsResponse metrics;
  ASSERT_TRUE(client_->jobs->ListJobMetrics(&context, request, &metrics).ok());
  EXPECT_EQ(metrics.points_size(), 4);
}

TEST_F(DaemonTest, EndsWithoutResultAreFailuresToo) {
  options_.worker_silence = milliseconds(1500);
  Start();
  const v1::Job exited = client_->WaitForEnd(client_->Submit({{"exit_at", "2"}}));
  EXPECT_EQ(exited.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(exited.state_message(), HasSubstr("exited with code 0"));
  const v1::Job hung = client_->WaitForEnd(client_->Submit({{"hang_at", "2"}}));
  EXPECT_EQ(hung.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(hung.state_message(), HasSubstr("reported nothing"));
  const v1::Job failed = client_->WaitForEnd(client_->Submit({{"fail", "1"}}));
  EXPECT_EQ(failed.failure_class(), v1::FAILURE_CLASS_DATA);
  EXPECT_EQ(failed.error().message(), "row 3 is no JSON");
}

TEST_F(DaemonTest, AMissingWorkerBinaryFailsTheJobNotTheDaemon) {
  options_.worker_binary = directory_.path() + "/no-such-worker";
  Start();
  const v1::Job job = client_->WaitForEnd(client_->Submit({}));
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(job.state_message(), HasSubstr("no-such-worker"));
}

TEST_F(DaemonTest, ALivingWorkerIsAdoptedAndNothingIsLostOrDoubled) {
  Start();
  const std::string name = client_->Submit({{"steps", "60"}, {"step_ms", "20"}});
  client_->WaitFor(name, [](const v1::Job& job) { return job.progress().step() >= 5; });
  Restart();
  EXPECT_EQ(client_->Get(name).state(), v1::JOB_STATE_RUNNING);
  const Seen seen = Summarize(ReadAll(*client_, Watch(name)));
  EXPECT_EQ(seen.steps, UpTo(60));
  EXPECT_EQ(seen.end->attempt(), 1);
  EXPECT_EQ(seen.end->state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(DaemonTest, AWorkerThatDiesWhileTheDaemonIsAwayIsNoticed) {
  Start();
  const std::string name =
      client_->Submit({{"steps", "40"}, {"step_ms", "10"}, {"crash_at", "30"}});
  client_->WaitForState(name, v1::JOB_STATE_RUNNING);
  daemon_.reset();
  const std::string lock = directory_.state() + "/" + name + "/worker.lock";
  for (int i = 0; i < 3000 && LockHolder(lock)->has_value(); ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  ASSERT_FALSE(LockHolder(lock)->has_value());
  Start();
  const v1::Job job = client_->Get(name);
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_GT(job.last_log_lines_size(), 0);
}

TEST_F(DaemonTest, IdleStreamsGetHeartbeatsAndMetricsAreThinned) {
  Start();
  const std::string busy = client_->Submit({{"steps", "60"}, {"step_ms", "10"}});
  v1::WatchJobsRequest thin = Watch(busy);
  thin.set_min_metric_interval_ms(100);
  thin.add_kinds(v1::WATCH_KIND_METRIC);
  int64_t points = 0;
  int64_t skipped = 0;
  int64_t last_step = 0;
  for (const auto& message : ReadAll(*client_, thin)) {
    EXPECT_FALSE(message.has_state_changed());
    if (!message.has_metrics()) continue;
    ++points;
    skipped += message.metrics().skipped();
    last_step = message.metrics().step();
  }
  EXPECT_EQ(points + skipped, 60);
  EXPECT_LT(points, 30);
  EXPECT_EQ(last_step, 60);

  grpc::ClientContext context;
  const auto reader = client_->jobs->WatchJobs(&context, Watch("jobs/-"));
  v1::WatchJobsResponse message;
  while (reader->Read(&message) && !message.has_heartbeat()) {
  }
  EXPECT_TRUE(message.has_heartbeat());
  EXPECT_GT(message.cursor().event(), 0u);
  context.TryCancel();
}

TEST_F(DaemonTest, StreamsAreLimitedAndAllGoneAfterTheirClientsAre) {
  options_.max_streams = 3;
  Start();
  const std::string name = client_->Submit({{"steps", "100000"}, {"step_ms", "5"}});
  client_->WaitForState(name, v1::JOB_STATE_RUNNING);
  {
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<v1::WatchJobsResponse>>> readers;
    v1::WatchJobsResponse message;
    for (int i = 0; i < 3; ++i) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      readers.push_back(client_->jobs->WatchJobs(contexts.back().get(), Watch(name)));
      EXPECT_TRUE(readers.back()->Read(&message));
    }
    grpc::Status status;
    ReadAll(*client_, Watch(name), &status);
    EXPECT_EQ(ErrorInfoOf(status).reason(), reason::kTooManyStreams);
    EXPECT_TRUE(HasDetail<google::rpc::RetryInfo>(status));
    for (auto& context : contexts) context->TryCancel();
    for (auto& reader : readers) EXPECT_FALSE(reader->Finish().ok());
  }
  for (int i = 0; i < 500 && daemon_->open_streams() > 0; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(daemon_->open_streams(), 0);
  EXPECT_EQ(client_->Get(name).state(), v1::JOB_STATE_RUNNING);
}

TEST_F(DaemonTest, Bc48WatchesThatAreGivenUpLeaveNothing) {
  Start();
  const std::string name = client_->Submit({{"steps", "100000"}, {"step_ms", "1"}});
  client_->WaitForState(name, v1::JOB_STATE_RUNNING);
  for (int i = 0; i < 1000; ++i) {
    grpc::ClientContext context;
    const auto reader = client_->jobs->WatchJobs(&context, Watch(name));
    v1::WatchJobsResponse message;
    if (i % 2 == 0) {
      EXPECT_TRUE(reader->Read(&message));
    }
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  for (int i = 0; i < 3000 && daemon_->open_streams() > 0; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(daemon_->open_streams(), 0);
  EXPECT_EQ(client_->Get(name).state(), v1::JOB_STATE_RUNNING);
}

// With gRPC's own limits the first one would be cut as well: at its fourth ping.
TEST_F(DaemonTest, Bc46QuietStreamsOutliveClientsThatPing) {
  options_.stream_heartbeat = std::chrono::hours(1);
  Start();
  const auto watch = [this](int ping_every_ms) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, ping_every_ms);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 60'000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    const auto jobs = v1::JobService::NewStub(grpc::CreateCustomChannel(
        "unix:" + daemon_->socket(), grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(24));
    const auto reader = jobs->WatchJobs(&context, Watch("jobs/-"));
    v1::WatchJobsResponse message;
    while (reader->Read(&message)) {
    }
    return reader->Finish();
  };
  auto patient = std::async(std::launch::async, watch, 5500);
  const grpc::Status hasty = watch(1000);
  EXPECT_EQ(hasty.error_code(), grpc::StatusCode::UNAVAILABLE) << "pings that nobody sends";
  const grpc::Status kept = patient.get();
  EXPECT_EQ(kept.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << kept.error_message();
}

TEST_F(DaemonTest, ExpiredCallsDoNoWork) {
  Start();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() - milliseconds(1));
  v1::CreateJobResponse response;
  EXPECT_FALSE(client_->jobs->CreateJob(&context, MakeRequest({}), &response).ok());
  grpc::ClientContext list_context;
  v1::ListJobsResponse list;
  ASSERT_TRUE(client_->jobs->ListJobs(&list_context, {}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 0);
}

TEST_F(DaemonTest, DrainingRefusesJobsAndStoppingEndsStreamsWithRetryInfo) {
  Start();
  const std::string name = client_->Submit({{"steps", "100000"}, {"step_ms", "5"}});
  client_->WaitForState(name, v1::JOB_STATE_RUNNING);
  grpc::ClientContext context;
  const auto reader = client_->jobs->WatchJobs(&context, Watch(name));
  v1::WatchJobsResponse message;
  ASSERT_TRUE(reader->Read(&message));
  daemon_->BeginDrain(OnDrain::kRunOn);
  v1::Job job;
  EXPECT_EQ(ErrorInfoOf(client_->Create(MakeRequest({}), &job)).reason(), reason::kServerDraining);
  std::jthread stop([&] { daemon_->Stop(); });
  while (reader->Read(&message)) EXPECT_FALSE(message.has_end());
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(HasDetail<google::rpc::RetryInfo>(status));
}

// Bytes of one call, for services whose stubs the distribution does not ship.
std::string RawCall(Client& client, const std::string& method, const std::string& request) {
  grpc::GenericStub stub(client.channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  wait();
  const grpc::Slice slice(request);
  call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  wait();
  grpc::ByteBuffer reply;
  call->Read(&reply, nullptr);
  wait();
  context.TryCancel();  // Some of these calls are streams without an end.
  grpc::Status status;
  call->Finish(&status, nullptr);
  wait();
  std::vector<grpc::Slice> slices;
  reply.Dump(&slices);
  std::string bytes;
  for (const grpc::Slice& part : slices) {
    bytes.append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  return bytes;
}

TEST_F(DaemonTest, HealthAndReflectionAnswer) {
  Start();
  const std::string service = "penstock.v1.JobService";
  const std::string check = std::string("\x0a") + static_cast<char>(service.size()) + service;
  const std::string kServing("\x08\x01", 2), kNotServing("\x08\x02", 2);
  EXPECT_EQ(RawCall(*client_, "/grpc.health.v1.Health/Check", ""), kServing);
  EXPECT_EQ(RawCall(*client_, "/grpc.health.v1.Health/Check", check), kServing);
  EXPECT_EQ(RawCall(*client_, "/grpc.health.v1.Health/Watch", check), kServing);
  daemon_->BeginDrain(OnDrain::kRunOn);
  EXPECT_EQ(RawCall(*client_, "/grpc.health.v1.Health/Check", check), kNotServing);
  EXPECT_EQ(RawCall(*client_, "/grpc.health.v1.Health/Check", ""), kServing);
  const std::string list_services("\x3a\x00", 2);
  const std::string services = RawCall(
      *client_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", list_services);
  for (const char* name :
       {"penstock.v1.JobService", "penstock.v1.CheckpointService", "penstock.v1.AdminService"}) {
    EXPECT_THAT(services, HasSubstr(name));
  }
  EXPECT_THAT(services, testing::Not(HasSubstr("WorkerService")));
}

TEST_F(DaemonTest, AdminTellsWhatTheDaemonIs) {
  Start();
  const std::string name = client_->Submit({{"steps", "100000"}, {"step_ms", "5"}});
  client_->WaitForState(name, v1::JOB_STATE_RUNNING);
  grpc::ClientContext info_context, device_context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(client_->admin->GetServerInfo(&info_context, {}, &info).ok());
  EXPECT_EQ(info.running_jobs(), 1);
  EXPECT_EQ(info.host_memory_bytes(), kHostBytes);
  EXPECT_EQ(info.host_memory_reserved_bytes(), 1 << 20);
  v1::ListDevicesResponse devices;
  ASSERT_TRUE(client_->admin->ListDevices(&device_context, {}, &devices).ok());
  EXPECT_EQ(devices.devices(0).job(), name);
}

TEST_F(DaemonTest, OneDaemonAStateDirectoryAndPrivateFiles) {
  Start();
  const auto second = Daemon::Start(options_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(ReasonOf(second.status()), reason::kLockHeld);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string(getpid())));
  for (const char* file : {"/penstock.sock", "/worker.sock", "/jobs.db", "/endpoint.json"}) {
    struct stat info {};
    ASSERT_EQ(stat((directory_.state() + file).c_str(), &info), 0) << file;
    EXPECT_EQ(info.st_mode & 0077, 0u) << file;
  }
  daemon_.reset();
  EXPECT_NE(access((directory_.state() + "/endpoint.json").c_str(), F_OK), 0);
}

TEST_F(DaemonTest, LoopbackTcpIsServedAndOtherAddressesAreNot) {
  options_.listen = "0.0.0.0:0";
  const auto refused = Daemon::Start(options_);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("TLS and authentication"));
  options_.listen = "127.0.0.1:0";
  Start();
  const auto channel =
      grpc::CreateChannel(daemon_->tcp_address(), grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  EXPECT_TRUE(v1::AdminService::NewStub(channel)->GetServerInfo(&context, {}, &info).ok());
}

TEST_F(DaemonTest, ASocketPathThatDoesNotFitIsRefused) {
  options_.socket = directory_.path() + "/" + std::string(120, 'x');
  const auto started = Daemon::Start(options_);
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(std::string(started.status().message()), HasSubstr("107"));
}

}  // namespace
}  // namespace penstock::server
