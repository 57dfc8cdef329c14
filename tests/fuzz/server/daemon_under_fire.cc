#include "tests/fuzz/server/daemon_under_fire.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/provenance/sha256.h"
#include "google/protobuf/stubs/logging.h"
#include "server/jobs/page_token.h"
#include "server/spec/job_spec.h"
#include "server/spec/spec_fields.h"
#include "server/store/job_state.h"
#include "spdlog/spdlog.h"
#include "tests/fuzz/target.h"

namespace penstock::fuzz {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kCasesBetweenLooks = 100;
constexpr int64_t kHostBytes = int64_t{1} << 30;
constexpr int kMaxJobs = 100;

// The real resolution of specs; memory as the fake planner plans it.
absl::StatusOr<v1::PlanJobResponse> Plan(const v1::PlanJobRequest& request,
                                         const std::vector<std::string>& roots,
                                         const server::DeviceRegistry& devices) {
  PENSTOCK_ASSIGN_OR_RETURN(
      server::ResolvedSpec resolved,
      server::ResolveJobSpec(request.spec(), roots,
                             {.devices = devices.List(), .missing_gpus = devices.missing_gpus()}));
  v1::PlanJobResponse response;
  *response.mutable_spec() = std::move(resolved.spec);
  response.mutable_plan()->set_host_peak_bytes(1 << 20);
  return response;
}

absl::StatusOr<v1::InspectDataResponse> Inspect(const v1::InspectDataRequest& request,
                                                const std::vector<std::string>& roots) {
  PENSTOCK_ASSIGN_OR_RETURN(const server::ResolvedSpec resolved,
                            server::ResolveJobSpec(request.spec(), roots, {}));
  v1::InspectDataResponse response;
  response.set_documents(request.examples());
  return response;
}

std::set<std::string> FilesBeside(const server::TestDirectory& directory) {
  std::set<std::string> found;
  for (auto it = fs::recursive_directory_iterator(directory.path());
       it != fs::recursive_directory_iterator(); ++it) {
    if (it->path() == directory.state()) {
      it.disable_recursion_pending();
    } else {
      found.insert(it->path().string());
    }
  }
  return found;
}

void AbortUnless(bool good, const std::string& what) {
  if (good) return;
  std::fprintf(stderr, "the daemon to be fuzzed: %s\n", what.c_str());
  std::abort();
}

}  // namespace

DaemonUnderFire::DaemonUnderFire(const std::string& testdata) {
  google::protobuf::SetLogHandler(nullptr);  // as penstockd does
  spdlog::set_level(spdlog::level::off);
  root_ = directory_.path() + "/root";
  const std::string examples = fs::canonical(testdata + "/../../examples").string();
  fs::copy(examples + "/tiny_llama", root_);
  spec_.mutable_model()->mutable_random()->set_config_path(root_ + "/config.json");
  spec_.mutable_data()->set_format(v1::DATA_FORMAT_TEXT);
  spec_.mutable_data()->add_paths(root_ + "/text.txt");
  spec_.mutable_batch()->set_sequence_length(64);
  spec_.mutable_batch()->set_tokens_per_step(512);
  spec_.mutable_optimizer()->set_learning_rate(3e-3);
  spec_.mutable_schedule()->set_max_steps(60);

  server::EngineHooks hooks = server::FakeHooks();
  server::DaemonOptions options;
  options.state_directory = directory_.state();
  options.listen = "127.0.0.1:0";
  options.http_listen = "127.0.0.1:0";
  options.require_token = true;
  options.allowed_roots = {root_};
  options.host_memory_bytes = kHostBytes;
  options.host_memory_limit_source = "fuzzing";
  options.max_queued_jobs = kMaxJobs;
  options.max_upload_bytes = 1 << 20;
  options.worker_binary = PENSTOCK_FAKE_WORKER;
  options.devices = hooks.make_devices();
  options.profiles = std::make_shared<const server::ProfileStore>(directory_.state() + "/profiles",
                                                                  hooks.profiles);
  const std::vector<std::string> roots = {root_, directory_.state() + "/uploads"};
  options.planner = [roots, devices = options.devices](const v1::PlanJobRequest& request,
                                                       server::PlanUse) {
    return Plan(request, roots, *devices);
  };
  options.inspector = [roots](const v1::InspectDataRequest& request, const std::string&,
                              const std::function<bool(double)>&) {
    return Inspect(request, roots);
  };
  options.output_checker = [roots](const std::string& path, const std::string& field) {
    return server::CheckNewPath(field, path, roots);
  };
  auto started = server::Daemon::Start(std::move(options));
  AbortUnless(started.ok(), started.status().ToString());
  daemon_ = *std::move(started);
  client_ = std::make_unique<server::Client>(daemon_->socket());
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  tcp_ = grpc::CreateCustomChannel(daemon_->tcp_address(), grpc::InsecureChannelCredentials(),
                                   arguments);
  MakeThings();
  beside_ = FilesBeside(directory_);
}

// Everything that a request can name, and tokens.
void DaemonUnderFire::MakeThings() {
  for (const auto& [user, role] :
       {std::pair{"vic", v1::ROLE_VIEWER}, std::pair{"ann", v1::ROLE_USER},
        std::pair{"root", v1::ROLE_ADMIN}, std::pair{"late", v1::ROLE_ADMIN}}) {
    v1::CreateTokenRequest request;
    request.set_user(user);
    request.set_role(role);
    if (user == std::string("late")) {
      request.mutable_expire_time()->set_seconds(static_cast<int64_t>(time(nullptr)) + 1);
    }
    grpc::ClientContext context;
    v1::CreateTokenResponse made;
    const grpc::Status status = client_->admin->CreateToken(&context, request, &made);
    AbortUnless(status.ok(), status.error_message());
    tokens_.push_back(made.secret());
    words_.push_back(made.token().name());
  }
  AbortUnless(Tidy().ok(), "nothing could be made");
  for (const char* word : {"jobs/fuzz-one",
                           "jobs/fuzz-two",
                           "jobs/-",
                           "jobs/fuzz-one/checkpoints/3",
                           "jobs/fuzz-one/checkpoints/-1",
                           "jobs/../x",
                           "jobs/fuzz-one/exports/1",
                           "uploads/fuzz-up",
                           "uploads/..",
                           "fuzz-three",
                           "a.txt",
                           "../a.txt",
                           "b/c.txt",
                           "/etc/passwd",
                           "cpu",
                           "GPU-1",
                           "",
                           "id-1",
                           "ann",
                           "h200-1.5tb",
                           "{}",
                           "broken",
                           "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                           "steps",
                           "100",
                           "chatml"}) {
    words_.emplace_back(word);
  }
  for (const std::string& path :
       {root_ + "/text.txt", root_ + "/config.json", root_ + "/out", root_ + "/../s/jobs.db",
        directory_.state() + "/uploads/fuzz-up", directory_.state() + "/signing.key"}) {
    words_.push_back(path);
  }
  words_.push_back(server::MakePageToken("", 1));
  words_.push_back(server::MakePageToken("x", INT64_MIN));
}

// The things there are, as far as they were deleted, and not many more.
absl::Status DaemonUnderFire::Tidy() {
  v1::ListJobsRequest list;
  list.set_page_size(1000);
  v1::ListJobsResponse jobs;
  {
    grpc::ClientContext context;
    const grpc::Status status = client_->jobs->ListJobs(&context, list, &jobs);
    if (!status.ok()) return Violation("the daemon does not answer: " + status.error_message(), "");
  }
  for (const v1::Job& job : jobs.jobs()) {
    if (jobs.jobs_size() <= kMaxJobs / 2 || !server::IsFinal(job.state())) continue;
    grpc::ClientContext context;
    v1::DeleteJobRequest request;
    request.set_name(job.name());
    v1::DeleteJobResponse response;
    client_->jobs->DeleteJob(&context, request, &response);
  }
  for (const auto& [id, steps] : {std::pair{"fuzz-one", "4"}, std::pair{"fuzz-two", "4"},
                                  std::pair{"fuzz-live", "1000000"}}) {
    grpc::ClientContext context;
    v1::CreateJobRequest request;
    request.set_job_id(id);
    *request.mutable_spec() = spec_;
    // Not so many checkpoints of one that has no end.
    (*request.mutable_spec()->mutable_labels())["checkpoint_every"] =
        steps == std::string("4") ? "1" : "0";
    (*request.mutable_spec()->mutable_labels())["steps"] = steps;
    v1::CreateJobResponse response;
    const grpc::Status status = client_->jobs->CreateJob(&context, request, &response);
    const grpc::StatusCode code = status.error_code();
    if (!status.ok() && code != grpc::StatusCode::ALREADY_EXISTS &&
        code != grpc::StatusCode::RESOURCE_EXHAUSTED) {
      return Violation(absl::StrCat("a good job is refused: ", status.error_message()), "");
    }
  }
  grpc::ClientContext context;
  v1::CreateUploadRequest upload;
  upload.set_upload_id("fuzz-up");
  for (const std::string& text : {std::string("abcdefg"), std::string()}) {
    v1::FileEntry& file = *upload.add_files();
    file.set_path(text.empty() ? "b/c.txt" : "a.txt");
    file.set_bytes(static_cast<int64_t>(text.size()));
    file.set_sha256(Sha256Of(text));
  }
  v1::CreateUploadResponse response;
  client_->transfers->CreateUpload(&context, upload, &response);
  return absl::OkStatus();
}

absl::Status DaemonUnderFire::AfterCase() {
  if (++cases_ % kCasesBetweenLooks != 0) return absl::OkStatus();
  for (const std::string& path : FilesBeside(directory_)) {
    if (!beside_.contains(path))
      return Violation("a file outside the state directory: " + path, "");
  }
  return Tidy();
}

}  // namespace penstock::fuzz
