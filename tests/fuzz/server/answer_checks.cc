#include "tests/fuzz/server/answer_checks.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "google/protobuf/dynamic_message.h"
#include "server/status_proto.h"
#include "server/store/log_file.h"
#include "tests/fuzz/target.h"
#include "tests/server/test_support.h"

namespace penstock::fuzz {
namespace {

bool IsReason(const std::string& text) {
  return !text.empty() && text.size() <= 63 &&
         text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == std::string::npos;
}

bool IsOurBug(absl::StatusCode code) {
  return code == absl::StatusCode::kInternal || code == absl::StatusCode::kUnknown;
}

}  // namespace

absl::Status CheckReason(const absl::Status& refusal, std::string_view input) {
  const std::string message(refusal.message());
  const std::string reason = ReasonOf(refusal);
  const auto wrong = [&](std::string_view what) {
    return Violation(absl::StrCat(std::string(what), ": ", refusal.ToString()), input);
  };
  if (message.empty()) return wrong("refused without a message");
  if (server::ValidUtf8(message) != message) return wrong("the message is no UTF-8");
  if (!IsReason(reason)) return wrong("the reason is none");
  if (reason == reason::kInternal || IsOurBug(refusal.code()))
    return wrong("a bug by its own word");
  return absl::OkStatus();
}

absl::Status CheckReply(const server::RawReply& reply,
                        const google::protobuf::MethodDescriptor& method, bool parses,
                        std::string_view input) {
  const grpc::Status& status = reply.status;
  const auto wrong = [&](std::string_view what) {
    return Violation(
        absl::StrCat(method.full_name(), ": ", std::string(what), ": ",
                     static_cast<int>(status.error_code()), " ", status.error_message()),
        input);
  };
  google::protobuf::DynamicMessageFactory factory;
  const std::unique_ptr<google::protobuf::Message> message(
      factory.GetPrototype(method.output_type())->New());
  for (const std::string& bytes : reply.messages) {
    if (!message->ParseFromString(bytes)) return wrong("a reply of another type");
  }
  if (status.ok()) {
    // To a server that reads a stream, gRPC says of a broken message no more than that the stream
    // is over; an upload then has the bytes that came before.
    if (!parses && !method.client_streaming()) return wrong("took what is no request");
    if (!method.server_streaming() && reply.messages.size() != 1) return wrong("no reply");
    return absl::OkStatus();
  }
  if (!parses) return absl::OkStatus();
  // A stream that we left.
  if (method.server_streaming() && status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::OkStatus();
  }
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details()) ||
      details.code() != static_cast<int>(status.error_code()) ||
      details.message() != status.error_message()) {
    return wrong("details that are not those of the status");
  }
  if (server::ErrorInfoOf(status).domain() != kErrorDomain) return wrong("no reason of ours");
  return CheckReason(FromStatusProto(details), input);
}

}  // namespace penstock::fuzz
