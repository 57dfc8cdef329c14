#include "server/status_proto.h"

#include <string>

#include "absl/strings/numbers.h"
#include "engine/base/status.h"
#include "google/rpc/error_details.pb.h"

namespace penstock {

google::rpc::Status ToStatusProto(const absl::Status& status) {
  google::rpc::Status proto;
  proto.set_code(static_cast<int>(status.code()));
  if (status.ok()) return proto;
  const std::string message(status.message());
  const ErrorMetadata metadata = MetadataOf(status);
  proto.set_message(message);

  google::rpc::ErrorInfo info;
  info.set_domain(kErrorDomain);
  info.set_reason(ReasonOf(status));
  for (const auto& [key, value] : metadata) (*info.mutable_metadata())[key] = value;
  proto.add_details()->PackFrom(info);

  if (const auto field = metadata.find("field"); field != metadata.end()) {
    google::rpc::BadRequest bad_request;
    auto* violation = bad_request.add_field_violations();
    violation->set_field(field->second);
    violation->set_description(message);
    proto.add_details()->PackFrom(bad_request);
  }
  if (const auto retry = metadata.find("retry_seconds"); retry != metadata.end()) {
    double seconds = 0;
    if (absl::SimpleAtod(retry->second, &seconds) && seconds >= 0 && seconds < 1e9) {
      google::rpc::RetryInfo retry_info;
      retry_info.mutable_retry_delay()->set_seconds(static_cast<int64_t>(seconds));
      const double rest = seconds - static_cast<double>(static_cast<int64_t>(seconds));
      retry_info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(rest * 1e9));
      proto.add_details()->PackFrom(retry_info);
    }
  }
  return proto;
}

absl::Status FromStatusProto(const google::rpc::Status& proto) {
  const auto code = static_cast<absl::StatusCode>(proto.code());
  if (code == absl::StatusCode::kOk) return absl::OkStatus();
  for (const auto& detail : proto.details()) {
    google::rpc::ErrorInfo info;
    if (!detail.UnpackTo(&info)) continue;
    const ErrorMetadata metadata(info.metadata().begin(), info.metadata().end());
    return Error(code, info.reason(), proto.message(), metadata);
  }
  return absl::Status(code, proto.message());
}

}  // namespace penstock
