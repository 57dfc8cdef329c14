// Calls of every method of every service with damaged messages, by callers of every kind.
#include "absl/strings/str_cat.h"
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

class RpcTarget final : public Target {
 public:
  explicit RpcTarget(const std::string& testdata)
      : daemon_(testdata), methods_(server::PublicMethods()) {}

  absl::StatusOr<Outcome> RunCase(Random& random) override {
    const MethodDescriptor& method = *random.Pick(methods_);
    server::RawCall call{.method = server::FullName(method), .requests = {}};
    bool parses = true;
    const size_t messages = method.client_streaming() ? random.Below(4) : 1;
    for (size_t i = 0; i < messages; ++i) {
      std::unique_ptr<Message> request = MakeRequest(*method.input_type(), random);
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
  std::unique_ptr<Message> MakeRequest(const google::protobuf::Descriptor& type, Random& random) {
    std::unique_ptr<Message> request(factory_.GetPrototype(&type)->New());
    FillMessage(*request, daemon_.words(), random);
    // With a job that would be taken, or nearly.
    const auto* spec = type.FindFieldByName("spec");
    if (spec != nullptr && spec->message_type()->full_name() == "penstock.v1.JobSpec") {
      Message& part = *request->GetReflection()->MutableMessage(request.get(), spec);
      part.ParseFromString(daemon_.spec().SerializeAsString());
      if (random.OneIn(2)) ChangeMessage(part, daemon_.words(), random);
    }
    return request;
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
