#include "server/rpc/grpc_status.h"

#include <algorithm>
#include <string>

#include "absl/strings/numbers.h"
#include "engine/base/status.h"
#include "google/rpc/error_details.pb.h"
#include "server/store/log_file.h"

namespace penstock::server {
namespace {

// Details travel as an HTTP/2 header, which peers limit to 8 KiB by default.
constexpr size_t kMaxMessageBytes = 2000;
constexpr size_t kMaxValueBytes = 500;

std::string Bounded(const std::string& text, size_t max_bytes) {
  // The cut may fall into a character; ValidUtf8 mends that.
  return text.size() <= max_bytes ? ValidUtf8(text) : ValidUtf8(text.substr(0, max_bytes)) + "...";
}

}  // namespace

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  google::rpc::Status out;
  if (status.ok()) return out;
  out.set_code(static_cast<int>(status.code()));
  out.set_message(Bounded(std::string(status.message()), kMaxMessageBytes));
  google::rpc::ErrorInfo info;
  info.set_domain("penstock");
  info.set_reason(ReasonOf(status));
  const ErrorMetadata metadata = MetadataOf(status);
  for (const auto& [key, value] : metadata) {
    (*info.mutable_metadata())[key] = Bounded(value, kMaxValueBytes);
  }
  out.add_details()->PackFrom(info);
  if (const auto field = metadata.find("field"); field != metadata.end()) {
    google::rpc::BadRequest bad_request;
    auto* violation = bad_request.add_field_violations();
    violation->set_field(Bounded(field->second, kMaxValueBytes));
    violation->set_description(Bounded(std::string(status.message()), kMaxValueBytes));
    out.add_details()->PackFrom(bad_request);
  }
  int64_t seconds = 0;
  if (const auto retry = metadata.find("retry_seconds");
      retry != metadata.end() && absl::SimpleAtoi(retry->second, &seconds)) {
    google::rpc::RetryInfo retry_info;
    retry_info.mutable_retry_delay()->set_seconds(seconds);
    out.add_details()->PackFrom(retry_info);
  }
  return out;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const google::rpc::Status rpc = ToRpcStatus(status);
  return {static_cast<grpc::StatusCode>(rpc.code()), rpc.message(), rpc.SerializeAsString()};
}

}  // namespace penstock::server
