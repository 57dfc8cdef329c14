// What a daemon is to who reaches it: its addresses and files, health, devices, its end.
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/daemon.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/raw_call.h"
#include "tests/server/test_support.h"

namespace penstock::server {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

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

// Of services whose stubs the distribution does not ship: the first reply.
std::string FirstReply(Client& client, const std::string& method, const std::string& request) {
  const RawReply reply =
      Make({.method = method, .requests = {request}, .most_replies = 1}, client.channel);
  return reply.messages.empty() ? reply.status.error_message() : reply.messages.front();
}

TEST_F(DaemonTest, HealthAndReflectionAnswer) {
  Start();
  const std::string service = "penstock.v1.JobService";
  const std::string check = std::string("\x0a") + static_cast<char>(service.size()) + service;
  const std::string kServing("\x08\x01", 2), kNotServing("\x08\x02", 2);
  EXPECT_EQ(FirstReply(*client_, "grpc.health.v1.Health/Check", ""), kServing);
  EXPECT_EQ(FirstReply(*client_, "grpc.health.v1.Health/Check", check), kServing);
  EXPECT_EQ(FirstReply(*client_, "grpc.health.v1.Health/Watch", check), kServing);
  daemon_->BeginDrain(OnDrain::kRunOn);
  EXPECT_EQ(FirstReply(*client_, "grpc.health.v1.Health/Check", check), kNotServing);
  EXPECT_EQ(FirstReply(*client_, "grpc.health.v1.Health/Check", ""), kServing);
  const std::string list_services("\x3a\x00", 2);
  const std::string services = FirstReply(
      *client_, "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", list_services);
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
