// The daemon from another process in C++: the path from submit to export, and following a job while
// the daemon is killed and started again.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/checkpoint_list.h"
#include "client/follow.h"
#include "client/job_file.h"
#include "client/private_daemon.h"
#include "client/rpc_client.h"
#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace penstock::client {
namespace {

class EndToEndTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/penstock-e2e-XXXXXX";  // short: sockets lie in it
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    ASSERT_EQ(mkdir(State().c_str(), 0700), 0);
    Start();
  }
  void TearDown() override {
    if (daemon_) daemon_->Stop();
    std::filesystem::remove_all(directory_);
  }

  std::string State() const { return directory_ + "/state"; }

  void Start() {
    auto daemon =
        PrivateDaemon::Start({.program = PENSTOCK_BIN "/penstockd", .state_directory = State()});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    client_ = std::make_unique<RpcClient>(daemon_->endpoint(), absl::Seconds(60));
    for (int i = 0; i < 600; ++i) {
      if (client_
              ->Call(client_->admin(), &v1::AdminService::Stub::GetServerInfo,
                     v1::GetServerInfoRequest())
              .ok()) {
        return;
      }
      ASSERT_TRUE(daemon_->CheckAlive().ok()) << daemon_->CheckAlive();
      absl::SleepFor(absl::Milliseconds(100));
    }
    FAIL() << "the daemon does not serve";
  }

  v1::Job Create(const std::vector<std::string>& settings) {
    v1::CreateJobRequest request;
    const auto spec = LoadJobFile(PENSTOCK_EXAMPLE "/job.yaml", settings);
    EXPECT_TRUE(spec.ok()) << spec.status();
    if (spec.ok()) *request.mutable_spec() = *spec;
    request.set_request_id(NewRequestId());
    const auto response = client_->Call(client_->jobs(), &v1::JobService::Stub::CreateJob, request);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? response->job() : v1::Job();
  }

  // A job that saves often removes what was its newest checkpoint a moment ago.
  void ExpectNewestIsLookedUpAgain(const std::string& job, const std::string& newest) {
    std::vector<std::string> tried;
    const auto gone_twice = [&](const std::string& checkpoint) {
      tried.push_back(checkpoint);
      return tried.size() > 2 ? absl::OkStatus()
                              : Error(absl::StatusCode::kNotFound, reason::kCheckpointNotFound,
                                      checkpoint + " is not there any more");
    };
    EXPECT_EQ(WithCheckpoint(*client_, job, gone_twice), absl::OkStatus());
    EXPECT_THAT(tried, testing::ElementsAre(newest, newest, newest));
    tried.clear();
    EXPECT_FALSE(WithCheckpoint(*client_, newest, gone_twice).ok()) << "asked for by its step";
    EXPECT_THAT(tried, testing::ElementsAre(newest));
  }

  std::string directory_;
  std::unique_ptr<PrivateDaemon> daemon_;
  std::unique_ptr<RpcClient> client_;
};

TEST_F(EndToEndTest, SubmitWatchCheckpointExport) {
  const v1::Job job = Create({"schedule.max_steps=12", "checkpoints.every_steps=5"});
  std::vector<int64_t> steps;
  v1::WatchJobsRequest watch;
  watch.set_name(job.name());
  watch.set_follow(true);
  const auto end = Follow(*client_, watch,
                          {.on_event =
                               [&](const v1::WatchJobsResponse& event) {
                                 if (event.has_metrics() && !event.metrics().has_evaluation()) {
                                   steps.push_back(event.metrics().step());
                                 }
                               },
                           .on_tick = [] { return true; },
                           .on_lost = [](const absl::Status& status) { ADD_FAILURE() << status; }});
  ASSERT_TRUE(end.ok()) << end.status();
  ASSERT_TRUE(end->has_value());
  EXPECT_EQ((*end)->state(), v1::JOB_STATE_SUCCEEDED) << (*end)->DebugString();
  EXPECT_THAT(steps, testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));

  v1::ListCheckpointsRequest list;
  list.set_parent(job.name());
  const auto checkpoints =
      client_->Call(client_->checkpoints(), &v1::CheckpointService::Stub::ListCheckpoints, list);
  ASSERT_TRUE(checkpoints.ok()) << checkpoints.status();
  ASSERT_EQ(checkpoints->checkpoints_size(), 2);
  EXPECT_EQ(checkpoints->checkpoints(1).step(), 12);
  ExpectNewestIsLookedUpAgain(job.name(), checkpoints->checkpoints(1).name());

  v1::ExportCheckpointRequest request;
  request.mutable_spec()->set_checkpoint(checkpoints->checkpoints(1).name());
  request.mutable_spec()->set_directory(directory_ + "/exported");
  const auto exported = client_->Call(client_->checkpoints(),
                                      &v1::CheckpointService::Stub::ExportCheckpoint, request);
  ASSERT_TRUE(exported.ok()) << exported.status();
  watch.set_name(exported->job().name());
  const auto export_end = Follow(*client_, watch,
                                 {.on_event = [](const v1::WatchJobsResponse&) {},
                                  .on_tick = [] { return true; },
                                  .on_lost = [](const absl::Status&) {}});
  ASSERT_TRUE(export_end.ok()) << export_end.status();
  EXPECT_EQ((*export_end)->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/exported/model.safetensors"));
}

TEST_F(EndToEndTest, FollowingOverAKilledDaemonSeesEveryStepOnce) {
  const v1::Job job = Create({"schedule.max_steps=300"});
  std::vector<int64_t> steps;
  v1::WatchJobsRequest watch;
  watch.set_name(job.name());
  watch.set_follow(true);
  watch.add_kinds(v1::WATCH_KIND_METRIC);
  bool killed = false, lost = false;
  // The client of the following must outlive the restart, so it is not client_.
  RpcClient follower(daemon_->endpoint(), absl::Seconds(60));
  const auto end = Follow(follower, watch,
                          {.on_event =
                               [&](const v1::WatchJobsResponse& event) {
                                 if (event.has_metrics() && !event.metrics().has_evaluation()) {
                                   steps.push_back(event.metrics().step());
                                 }
                               },
                           .on_tick =
                               [&] {
                                 if (!killed && steps.size() >= 5) {
                                   killed = true;
                                   kill(daemon_->pid(), SIGKILL);
                                   daemon_->Stop();
                                   Start();
                                 }
                                 return !HasFatalFailure();
                               },
                           .on_lost = [&](const absl::Status&) { lost = true; }});
  ASSERT_TRUE(end.ok()) << end.status();
  ASSERT_TRUE(end->has_value());
  EXPECT_EQ((*end)->state(), v1::JOB_STATE_SUCCEEDED) << (*end)->DebugString();
  EXPECT_TRUE(killed);
  EXPECT_TRUE(lost);
  ASSERT_EQ(steps.size(), 300u);
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], static_cast<int64_t>(i) + 1);
}

}  // namespace
}  // namespace penstock::client
