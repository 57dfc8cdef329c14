// Streams of a daemon: what watchers see, and what is left when they go.
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/status.h"
#include "gtest/gtest.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/test_support.h"
#include "tests/server/watch_summary.h"

namespace penstock::server {
namespace {

using std::chrono::milliseconds;

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

}  // namespace
}  // namespace penstock::server
