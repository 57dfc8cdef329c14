// The one converter from absl::Status to google.rpc.Status. The daemon puts the result into the
// trailers of a call (server/rpc/grpc_status.h), a worker into its outcome, so an error looks the
// same wherever it was found.
//
// Details are, in this order: ErrorInfo {domain "penstock", reason, metadata}; BadRequest with the
// path of the field if the metadata has "field"; RetryInfo if it has "retry_seconds".
#pragma once

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"

namespace penstock {

inline constexpr char kErrorDomain[] = "penstock";

google::rpc::Status ToStatusProto(const absl::Status& status);

// The way back, for code, message, reason and metadata.
absl::Status FromStatusProto(const google::rpc::Status& proto);

}  // namespace penstock
