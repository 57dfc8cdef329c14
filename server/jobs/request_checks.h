// The form of what requests carry, checked before anything else looks at it: names become paths.
// All errors are InvalidArgument / REQUEST_INVALID with metadata "field", "found", "expected".
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/job_spec.pb.h"
#include "penstock/v1/transfer_service.pb.h"

namespace penstock::server {

// 4-63 characters [a-z0-9-], the first a letter.
absl::Status CheckJobId(const std::string& id, const std::string& field);
// The same, 4-59 characters: its jobs have four more.
absl::Status CheckSweepId(const std::string& id, const std::string& field);
// sweeps/{id}
absl::Status CheckSweepName(const std::string& name, const std::string& field);
// jobs/{id}
absl::Status CheckJobName(const std::string& name, const std::string& field);

struct CheckpointName {
  std::string job;
  int64_t step = 0;
};
// jobs/{id}/checkpoints/{step}
absl::StatusOr<CheckpointName> ParseCheckpointName(const std::string& name,
                                                   const std::string& field);

// uploads/{id}, with an id as a job's.
absl::Status CheckUploadName(const std::string& name, const std::string& field);
// The announced files of an upload: 1 to 10,000, with paths that name one file each and lie beneath
// a directory, and SHA-256 in lower-case hexadecimal. Gives the bytes of all of them.
absl::StatusOr<int64_t> CheckUploadFiles(const v1::CreateUploadRequest& request);

// Empty, or at most 128 printable ASCII characters.
absl::Status CheckRequestId(const std::string& id);
// 1-63 characters [a-z0-9._-], the first a letter.
absl::Status CheckUserName(const std::string& name, const std::string& field);
// At most `max_bytes`, without control characters.
absl::Status CheckText(const std::string& text, const std::string& field, size_t max_bytes);
// display_name and labels of a spec.
absl::Status CheckNaming(const v1::JobSpec& spec);

}  // namespace penstock::server
