// The replies of mutating calls that carried a request_id, by (method, caller, id): nobody is given
// another's reply.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "server/store/job_store.h"

namespace penstock::server {

// A hash of the request's bytes, fields in a fixed order.
std::string RequestHash(const google::protobuf::Message& request);

// What requests of this type are stored under: "penstock.v1.CancelJobRequest of alice".
std::string RequestMethod(const google::protobuf::Message& request);

// The reply stored for this request_id, if any. AlreadyExists / REQUEST_ID_REUSED if the id came
// with other content.
template <typename Response, typename Request>
absl::StatusOr<std::optional<Response>> Replay(JobStore& store, const Request& request) {
  if (request.request_id().empty()) return std::nullopt;
  absl::StatusOr<std::optional<std::string>> bytes =
      store.FindReply(RequestMethod(request), request.request_id(), RequestHash(request));
  if (!bytes.ok()) return bytes.status();
  if (!bytes->has_value()) return std::nullopt;
  std::optional<Response> response(std::in_place);
  if (!response->ParseFromString(**bytes)) {
    return absl::DataLossError("a stored reply cannot be read");
  }
  return response;
}

// The record to store with the effect; nothing if the request has no id.
template <typename Request, typename Response>
std::optional<RequestRecord> MakeRecord(const Request& request, const Response& response) {
  if (request.request_id().empty()) return std::nullopt;
  return RequestRecord{.method = RequestMethod(request),
                       .id = request.request_id(),
                       .hash = RequestHash(request),
                       .reply = response.SerializeAsString()};
}

}  // namespace penstock::server
