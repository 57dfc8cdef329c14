// Calls of every method of every service with damaged messages, by callers of every kind.
#include <map>

#include "absl/strings/str_cat.h"
#include "engine/base/crc32c.h"
#include "google/protobuf/dynamic_message.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/server/answer_checks.h"
#include "tests/fuzz/server/daemon_under_fire.h"
#include "tests/fuzz/server/message_maker.h"
#include "tests/fuzz/server/server_targets.h"
#include "tests/server/public_methods.h"

namespace penstock::fuzz {
namespace {

using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

// By the method: the field that says what the request is about, and what there is of that kind.
// Most requests would otherwise end at a name that is none.
struct Aim {
  std::string field;
  std::vector<std::string> things;
};

const std::map<std::string, Aim>& Aims() {
  static const std::vector<std::string> jobs = {"jobs/fuzz-one", "jobs/fuzz-two", "jobs/fuzz-live"};
  static const std::vector<std::string> checkpoints = {
      "jobs/fuzz-one/checkpoints/1", "jobs/fuzz-one/checkpoints/4", "jobs/fuzz-two/checkpoints/2",
      "jobs/fuzz-two/checkpoints/4"};
  static const std::vector<std::string> uploads = {"uploads/fuzz-up"};
  static const std::vector<std::string> parents = {
      "jobs/fuzz-one/checkpoints/4", "jobs/fuzz-two/checkpoints/4", "uploads/fuzz-up"};
  static const auto* const aims =
      new std::map<std::string, Aim>{{"GetJob", {"name", jobs}},
                                     {"CancelJob", {"name", jobs}},
                                     {"PauseJob", {"name", jobs}},
                                     {"ResumeJob", {"name", jobs}},
                                     {"DeleteJob", {"name", jobs}},
                                     {"WatchJobs", {"name", jobs}},
                                     {"ListJobMetrics", {"name", jobs}},
                                     {"TraceJob", {"name", jobs}},
                                     {"ListCheckpoints", {"parent", jobs}},
                                     {"SaveCheckpoint", {"parent", jobs}},
                                     {"GetCheckpoint", {"name", checkpoints}},
                                     {"PinCheckpoint", {"name", checkpoints}},
                                     {"DeleteCheckpoint", {"name", checkpoints}},
                                     {"ListFiles", {"parent", parents}},
                                     {"ReadFile", {"parent", parents}},
                                     {"GetUpload", {"name", uploads}},
                                     {"WriteUpload", {"name", uploads}},
                                     {"FinishUpload", {"name", uploads}},
                                     {"DeleteUpload", {"name", uploads}},
                                     {"ReleaseDevice", {"id", {"cpu"}}},
                                     {"CalibrateDevice", {"id", {"cpu"}}}};
  return *aims;
}

class RpcTarget final : public Target {
 public:
  explicit RpcTarget(const std::string& testdata)
      : daemon_(testdata), methods_(server::PublicMethods()) {}

  absl::StatusOr<Outcome> RunCase(Random& random) override {
    if (random.OneIn(40)) return CallForeign(random);
    const MethodDescriptor& method = *random.Pick(methods_);
    server::RawCall call{.method = server::FullName(method), .requests = {}};
    bool parses = true;
    const size_t messages = method.client_streaming() ? random.Below(4) : 1;
    for (size_t i = 0; i < messages; ++i) {
      std::unique_ptr<Message> request = MakeRequest(method, random);
      call.requests.push_back(DamagedBytes(*request, random));
      parses = parses && request->ParseFromString(call.requests.back());
    }
    // Those that follow or that wait for a worker do so for ever.
    if (method.server_streaming()) call.limit = std::chrono::milliseconds(50);
    const bool over_tcp = random.OneIn(3);
    AddHeaders(over_tcp, random, call);
    const server::RawReply reply = Make(call, over_tcp ? daemon_.tcp() : daemon_.socket());
    std::string input = call.method;
    for (const std::string& request : call.requests) absl::StrAppend(&input, "\n", request);
    if (absl::Status status = CheckReply(reply, method, parses, input); !status.ok()) return status;
    if (absl::Status status = daemon_.AfterCase(); !status.ok()) return status;
    return reply.status.ok() ? Outcome::kAccepted : Outcome::kRefused;
  }

 private:
  // What gRPC brings along, what is the workers' alone, and what is not there.
  absl::StatusOr<Outcome> CallForeign(Random& random) {
    static const std::vector<std::string> methods = {
        "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "grpc.health.v1.Health/Check",
        "grpc.health.v1.Health/Watch",
        "penstock.internal.WorkerService/Report",
        "penstock.v1.JobService/NoSuchCall",
        "../JobService/GetJob"};
    server::RawCall call{.method = random.Pick(methods), .requests = {}};
    call.requests.push_back(MutateText("\x3a\x01*penstock.v1.JobService", daemon_.words(),
                                       "\x0a\xff\xff\xff\x7f", random));
    call.limit = std::chrono::milliseconds(50);
    AddHeaders(/*over_tcp=*/true, random, call);
    const server::RawReply reply = Make(call, daemon_.tcp());
    const bool there = call.method.substr(0, 5) == "grpc.";
    if (!there && reply.status.ok()) return Violation("a call that nobody serves", call.method);
    if (absl::Status status = daemon_.AfterCase(); !status.ok()) return status;
    return reply.status.ok() ? Outcome::kAccepted : Outcome::kRefused;
  }

  std::unique_ptr<Message> MakeRequest(const MethodDescriptor& method, Random& random) {
    const google::protobuf::Descriptor& type = *method.input_type();
    std::unique_ptr<Message> request(factory_.GetPrototype(&type)->New());
    FillMessage(*request, daemon_.words(), random);
    // With a job that would be taken, or nearly.
    const auto* spec = type.FindFieldByName("spec");
    if (spec != nullptr && spec->message_type()->full_name() == "penstock.v1.JobSpec") {
      Message& part = *request->GetReflection()->MutableMessage(request.get(), spec);
      part.ParseFromString(daemon_.spec().SerializeAsString());
      if (random.OneIn(2)) ChangeMessage(part, daemon_.words(), random);
    }
    if (!random.OneIn(4)) TakeAim(method, *request, random);
    return request;
  }

  void TakeAim(const MethodDescriptor& method, Message& request, Random& random) {
    const auto& type = *request.GetDescriptor();
    const auto& reflection = *request.GetReflection();
    if (const auto found = Aims().find(method.name()); found != Aims().end()) {
      reflection.SetString(&request, type.FindFieldByName(found->second.field),
                           random.Pick(found->second.things));
    }
    for (const char* optional : {"request_id", "page_token", "checkpoint", "owner"}) {
      const auto* field = type.FindFieldByName(optional);
      if (field != nullptr && random.OneIn(2)) reflection.ClearField(&request, field);
    }
    if (const auto* size = type.FindFieldByName("page_size")) {
      reflection.SetInt32(&request, size, static_cast<int32_t>(random.Below(5)));
    }
    if (const std::string parts = GoodParts(method.name(), random); !parts.empty()) {
      request.Clear();
      request.ParseFromString(parts);
    }
  }

  // Of methods that want several fields to fit together; nothing for others.
  std::string GoodParts(const std::string& method, Random& random) const {
    if (method == "WriteUpload") {
      v1::WriteUploadRequest piece;
      piece.set_name("uploads/fuzz-up");
      piece.set_path("a.txt");
      piece.set_offset(static_cast<int64_t>(random.Below(2)) * 3);
      piece.set_data(random.OneIn(2) ? "abc" : "defg");
      piece.set_crc32c(Crc32c(piece.data()));
      return piece.SerializeAsString();
    }
    if (method == "ReadFile") {
      v1::ReadFileRequest read;
      read.set_parent(random.Pick(Aims().at("ReadFile").things));
      read.set_path(random.OneIn(2) ? "a.txt" : "manifest.json");
      read.set_offset(static_cast<int64_t>(random.Below(9)));
      return read.SerializeAsString();
    }
    if (method == "CreateUpload") {
      v1::CreateUploadRequest create;
      v1::FileEntry& file = *create.add_files();
      file.set_path("x");
      file.set_bytes(static_cast<int64_t>(random.Below(99)));
      file.set_sha256(std::string(64, '0'));
      return create.SerializeAsString();
    }
    if (method == "ExportCheckpoint") {
      v1::ExportCheckpointRequest create;
      create.mutable_spec()->set_checkpoint(random.Pick(Aims().at("GetCheckpoint").things));
      create.mutable_spec()->set_directory(
          absl::StrCat(daemon_.root(), "/export-", random.Below(1 << 20)));
      return create.SerializeAsString();
    }
    if (method == "CreateToken") {
      v1::CreateTokenRequest token;
      token.set_user("bob");
      token.set_role(random.OneIn(2) ? v1::ROLE_VIEWER : v1::ROLE_USER);
      return token.SerializeAsString();
    }
    return "";
  }

  void AddHeaders(bool over_tcp, Random& random, server::RawCall& call) {
    if (over_tcp || random.OneIn(4)) {
      std::string value = "Bearer " + random.Pick(daemon_.tokens());
      if (random.OneIn(4)) value = MutateText(std::move(value), {}, "Bearer pst_", random);
      for (char& c : value) {
        if (c < 0x20 || c > 0x7e) c = '?';  // gRPC's client sends no others
      }
      call.headers.emplace_back("authorization", value);
      if (random.OneIn(20)) call.headers.emplace_back("authorization", value);
    }
    if (random.OneIn(20)) call.headers.emplace_back("x-bin", std::string(random.Below(9000), 'a'));
  }

  DaemonUnderFire daemon_;
  const std::vector<const MethodDescriptor*> methods_;
  google::protobuf::DynamicMessageFactory factory_;
};

}  // namespace

std::unique_ptr<Target> MakeRpcTarget(const std::string& testdata) {
  return std::make_unique<RpcTarget>(testdata);
}

}  // namespace penstock::fuzz
