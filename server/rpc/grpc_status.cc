#include "server/rpc/grpc_status.h"

#include <string>

#include "engine/base/status.h"
#include "server/status_proto.h"
#include "server/store/log_file.h"

namespace penstock::server {
namespace {

// The message is in the header three times: status, details and BadRequest.
constexpr size_t kMaxMessageBytes = 1500;
constexpr size_t kMaxValueBytes = 300;

std::string Bounded(const std::string& text, size_t max_bytes) {
  // The cut may fall into a character; ValidUtf8 mends that.
  return text.size() <= max_bytes ? ValidUtf8(text) : ValidUtf8(text.substr(0, max_bytes)) + "...";
}

}  // namespace

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  if (status.ok()) return {};
  ErrorMetadata metadata = MetadataOf(status);
  for (auto& [key, value] : metadata) value = Bounded(value, kMaxValueBytes);
  return ToStatusProto(Error(status.code(), ReasonOf(status),
                             Bounded(std::string(status.message()), kMaxMessageBytes), metadata));
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const google::rpc::Status rpc = ToRpcStatus(status);
  return {static_cast<grpc::StatusCode>(rpc.code()), rpc.message(), rpc.SerializeAsString()};
}

}  // namespace penstock::server
