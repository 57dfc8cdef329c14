// A state directory, clients and jobs for tests of the daemon with fake workers.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "grpcpp/grpcpp.h"
#include "penstock/v1/admin_service.grpc.pb.h"
#include "penstock/v1/checkpoint_service.grpc.pb.h"
#include "penstock/v1/job.grpc.pb.h"
#include "penstock/v1/transfer_service.grpc.pb.h"
#include "server/run_daemon.h"

namespace penstock::server {

// Short, for paths of unix sockets; removed at the end, with the workers in it killed.
class TestDirectory {
 public:
  TestDirectory();
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  ~TestDirectory();
  const std::string& path() const { return path_; }
  std::string state() const { return path_ + "/s"; }
  std::string socket() const { return state() + "/penstock.sock"; }

 private:
  std::string path_;
};

inline constexpr int kFakeProgramBytes = 1000;
// Plans any spec: label host_bytes (default 1 MiB); with label gpu for a GPU. Refuses display_name
// "bad" with SPEC_INVALID.
absl::StatusOr<v1::PlanJobResponse> FakePlan(const v1::PlanJobRequest& request);
EngineHooks FakeHooks();

using Labels = std::map<std::string, std::string>;

struct Client {
  explicit Client(const std::string& socket);
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::JobService::Stub> jobs;
  std::unique_ptr<v1::CheckpointService::Stub> checkpoints;
  std::unique_ptr<v1::AdminService::Stub> admin;
  std::unique_ptr<v1::TransferService::Stub> transfers;

  grpc::Status Create(const v1::CreateJobRequest& request, v1::Job* job);
  // Name of the new job; fails the test if it is refused.
  std::string Submit(const Labels& labels, int32_t max_attempts = 1);
  v1::Job Get(const std::string& name);
  // Polls until the condition holds; fails the test after 30 s.
  v1::Job WaitFor(const std::string& name, const std::function<bool(const v1::Job&)>& condition);
  v1::Job WaitForEnd(const std::string& name);
  v1::Job WaitForState(const std::string& name, v1::JobState state);
};

v1::CreateJobRequest MakeRequest(const Labels& labels);
// Reads until the stream closes.
std::vector<v1::WatchJobsResponse> ReadAll(Client& client, const v1::WatchJobsRequest& request,
                                           grpc::Status* status = nullptr);
v1::WatchJobsRequest Watch(const std::string& name);

google::rpc::ErrorInfo ErrorInfoOf(const grpc::Status& status);
template <typename Detail>
bool HasDetail(const grpc::Status& status) {
  google::rpc::Status rpc;
  rpc.ParseFromString(status.error_details());
  for (const auto& detail : rpc.details()) {
    if (detail.Is<Detail>()) return true;
  }
  return false;
}

}  // namespace penstock::server
