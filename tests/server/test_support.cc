#include "tests/server/test_support.h"

#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "engine/base/status.h"
#include "gtest/gtest.h"
#include "server/lock_file.h"
#include "server/store/job_state.h"
#include "tests/server/fake_gpus.h"

namespace penstock::server {
namespace fs = std::filesystem;

TestDirectory::TestDirectory() {
  std::string pattern = "/tmp/pst-XXXXXX";
  path_ = mkdtemp(pattern.data()) == nullptr ? "" : pattern;
}

TestDirectory::~TestDirectory() {
  std::error_code error;
  for (fs::directory_iterator it(state() + "/jobs", error), end; !error && it != end; ++it) {
    const auto holder = LockHolder(it->path().string() + "/worker.lock");
    if (!holder.ok() || !*holder) continue;
    const auto contents = ParseWorkerLock(**holder);
    if (contents) kill(contents->process.pid, SIGKILL);
  }
  fs::remove_all(path_, error);
}

absl::StatusOr<v1::PlanJobResponse> FakePlan(const v1::PlanJobRequest& request) {
  const v1::JobSpec& spec = request.spec();
  if (spec.display_name() == "bad") {
    return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
                 "batch.tokens_per_step is 7; expected a multiple of 4",
                 {{"field", "batch.tokens_per_step"}});
  }
  v1::PlanJobResponse planned;
  *planned.mutable_spec() = spec;
  if (!request.machine().empty()) planned.add_warnings("for " + request.machine());
  if (request.with_program()) planned.set_step_program(std::string(kFakeProgramBytes, 'p'));
  if (request.with_trace()) planned.set_step_trace("[]");
  const auto bytes = spec.labels().find("host_bytes");
  planned.mutable_plan()->set_host_peak_bytes(
      bytes == spec.labels().end() ? 1 << 20 : std::stoll(bytes->second));
  if (spec.labels().contains("gpu")) {
    planned.mutable_spec()->mutable_device()->set_kind(v1::DEVICE_CHOICE_CUDA);
    planned.mutable_plan()->set_device_bytes(1 << 20);
  }
  return planned;
}

// As many documents as examples are asked for. With the label "endless" it goes on until nobody
// waits any more.
absl::StatusOr<v1::InspectDataResponse> FakeInspect(const v1::InspectDataRequest& request,
                                                    const std::string& token_cache_directory,
                                                    const std::function<bool(double)>& go_on) {
  if (request.spec().labels().contains("broken")) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid, "the data are broken");
  }
  const bool endless = request.spec().labels().contains("endless");
  for (double fraction = 0; fraction < 1 || endless;) {
    fraction = std::min(1.0, fraction + 0.1);
    if (!go_on(fraction)) {
      return Error(absl::StatusCode::kCancelled, reason::kCallCancelled, "nobody waits");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  v1::InspectDataResponse response;
  response.set_documents(request.examples());
  response.add_setup(token_cache_directory);
  return response;
}

EngineHooks FakeHooks() {
  EngineHooks hooks;
  hooks.make_devices = []() -> std::shared_ptr<DeviceRegistry> {
    return DeviceRegistry::Create(
        FakeRegistryOptions(std::make_shared<FakeGpus>(GpuInventory{.cuda_version = 13000})));
  };
  hooks.make_planner = [](const std::vector<std::string>&, std::shared_ptr<const DeviceRegistry>,
                          std::shared_ptr<const ProfileStore>) -> SpecPlanner {
    return [](const v1::PlanJobRequest& request, PlanUse) { return FakePlan(request); };
  };
  hooks.make_inspector = [](const std::vector<std::string>&, std::shared_ptr<const DeviceRegistry>,
                            int64_t) -> DataInspector { return FakeInspect; };
  hooks.make_output_checker = [](const std::vector<std::string>&) -> OutputChecker {
    return [](const std::string& path, const std::string&) { return path; };
  };
  // A profile is its identity.
  hooks.profiles.read = [](const std::string& json,
                           const std::string& origin) -> absl::StatusOr<v1::MachineProfile> {
    if (json == "broken") {
      return Error(absl::StatusCode::kInvalidArgument, reason::kProfileInvalid,
                   origin + ": broken");
    }
    v1::MachineProfile profile;
    profile.set_identity(json);
    return profile;
  };
  hooks.profiles.identity = [](const v1::Device& device) { return "this " + device.id(); };
  hooks.capabilities = {"backend.cpu"};
  return hooks;
}

Client::Client(const std::string& socket) {
  grpc::ChannelArguments arguments;
  // Each client a connection of its own, as separate programs have.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  channel =
      grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
  jobs = v1::JobService::NewStub(channel);
  checkpoints = v1::CheckpointService::NewStub(channel);
  admin = v1::AdminService::NewStub(channel);
  transfers = v1::TransferService::NewStub(channel);
}

v1::CreateJobRequest MakeRequest(const Labels& labels) {
  v1::CreateJobRequest request;
  for (const auto& [key, value] : labels) (*request.mutable_spec()->mutable_labels())[key] = value;
  return request;
}

grpc::Status Client::Create(const v1::CreateJobRequest& request, v1::Job* job) {
  grpc::ClientContext context;
  v1::CreateJobResponse response;
  const grpc::Status status = jobs->CreateJob(&context, request, &response);
  *job = response.job();
  return status;
}

std::string Client::Submit(const Labels& labels, int32_t max_attempts) {
  v1::CreateJobRequest request = MakeRequest(labels);
  request.mutable_spec()->mutable_limits()->set_max_attempts(max_attempts);
  v1::Job job;
  const grpc::Status status = Create(request, &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job.name();
}

v1::Job Client::Get(const std::string& name) {
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_name(name);
  v1::GetJobResponse response;
  const grpc::Status status = jobs->GetJob(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.job();
}

v1::Job Client::WaitFor(const std::string& name,
                        const std::function<bool(const v1::Job&)>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (true) {
    v1::Job job = Get(name);
    if (condition(job)) return job;
    if (std::chrono::steady_clock::now() > end) {
      ADD_FAILURE() << name << " stayed " << job.ShortDebugString();
      return job;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

v1::Job Client::WaitForEnd(const std::string& name) {
  return WaitFor(name, [](const v1::Job& job) { return IsFinal(job.state()); });
}

v1::Job Client::WaitForState(const std::string& name, v1::JobState state) {
  return WaitFor(name, [state](const v1::Job& job) { return job.state() == state; });
}

std::vector<v1::WatchJobsResponse> ReadAll(Client& client, const v1::WatchJobsRequest& request,
                                           grpc::Status* status) {
  grpc::ClientContext context;
  const auto reader = client.jobs->WatchJobs(&context, request);
  std::vector<v1::WatchJobsResponse> messages;
  while (reader->Read(&messages.emplace_back())) {
  }
  messages.pop_back();
  const grpc::Status end = reader->Finish();
  if (status != nullptr) {
    *status = end;
  } else {
    EXPECT_TRUE(end.ok()) << end.error_message();
  }
  return messages;
}

v1::WatchJobsRequest Watch(const std::string& name) {
  v1::WatchJobsRequest request;
  request.set_name(name);
  request.set_follow(true);
  return request;
}

google::rpc::ErrorInfo ErrorInfoOf(const grpc::Status& status) {
  google::rpc::Status rpc;
  rpc.ParseFromString(status.error_details());
  google::rpc::ErrorInfo info;
  for (const auto& detail : rpc.details()) {
    if (detail.UnpackTo(&info)) return info;
  }
  return info;
}

}  // namespace penstock::server
