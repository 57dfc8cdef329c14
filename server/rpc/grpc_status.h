// Errors on their way out of the daemon: bounded, valid UTF-8, with google.rpc details
// (server/status_proto.h says which).
#pragma once

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"

namespace penstock::server {

// Details travel as an HTTP/2 header, which peers limit to 8 KiB; and a proto string that is not
// UTF-8 cannot be read back from the store. Long texts are cut, bad bytes replaced.
google::rpc::Status ToRpcStatus(const absl::Status& status);
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace penstock::server
