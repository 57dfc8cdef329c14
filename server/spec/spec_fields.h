// Checks of single fields, with errors of one form:
//   "batch.sequence_length: found 0, expected an integer from 2 to 1048576"
// and metadata "field", "found", "expected". How fields go together is in job_spec.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/map.h"
#include "google/protobuf/message.h"

namespace penstock::server {

// InvalidArgument / SPEC_INVALID.
absl::Status FieldError(const std::string& field, const std::string& found,
                        const std::string& expected);
// The field is given but nothing would read it; `because` goes on after "has no effect".
absl::Status UnusedFieldError(const std::string& field, const std::string& because);

// The same status, with the field in front of its message and in its metadata.
absl::Status AtField(const absl::Status& status, const std::string& field);

// Refuses enum values that this build does not know: a newer client may send them.
absl::Status CheckEnum(const std::string& field, const google::protobuf::EnumDescriptor* type,
                       int value);

// Refuses fields that this build does not know, anywhere in the message: a newer client means
// something by them, which a job without them would not do. `field` is the path of `message`.
absl::Status CheckKnownFields(const std::string& field, const google::protobuf::Message& message);

absl::Status CheckInteger(const std::string& field, int64_t value, int64_t low, int64_t high);

// Both ends allowed unless the range says otherwise. NaN and infinities are in no range.
struct DoubleRange {
  double low;
  double high;
  bool low_allowed = true;
  bool high_allowed = true;
};
absl::Status CheckDouble(const std::string& field, double value, const DoubleRange& range);

absl::Status CheckDisplayName(const std::string& field, const std::string& text);
absl::Status CheckLabels(const std::string& field,
                         const google::protobuf::Map<std::string, std::string>& labels);

// The path with symbolic links resolved. InvalidArgument for an empty or relative one,
// PermissionDenied / PATH_NOT_ALLOWED for one outside the roots.
absl::StatusOr<std::string> CheckPath(const std::string& field, const std::string& path,
                                      const std::vector<std::string>& allowed_roots);

// The text of a file, after CheckPath().
absl::StatusOr<std::string> ReadFileAt(const std::string& field, const std::string& path,
                                       const std::vector<std::string>& allowed_roots,
                                       int64_t max_bytes);

// CheckPath(), and nothing may be there yet (AlreadyExists / OUTPUT_EXISTS) while the directory
// it will lie in exists.
absl::StatusOr<std::string> CheckNewPath(const std::string& field, const std::string& path,
                                         const std::vector<std::string>& allowed_roots);

}  // namespace penstock::server
