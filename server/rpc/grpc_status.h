// The one place where an absl::Status becomes what goes over the wire.
//
// Each error carries a google.rpc.ErrorInfo (domain "penstock", its reason, its metadata) and,
// by its metadata: "field" gives a BadRequest, "retry_seconds" a RetryInfo.
#pragma once

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"

namespace penstock::server {

google::rpc::Status ToRpcStatus(const absl::Status& status);
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace penstock::server
