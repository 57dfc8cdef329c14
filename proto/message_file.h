// Reads YAML or JSON into any protobuf message, strictly: a job file is exactly the message
// JobSpec, penstockd's config file exactly DaemonConfig.
//
// - Keys are the field names of the .proto (sequence_length); the lowerCamel names of proto3 JSON
//   are taken too, so what the command line prints can be fed back. An unknown key is refused with
//   the key that was probably meant; a key given twice, and two members of a oneof, are refused.
// - A scalar is read by the type of its field, never by what YAML would resolve it to. 1e-5,
//   1.0e-5, '1e-5', 1E-05 and .00001 are one number; nan, .inf, 1_000, 010 and 1,0e-5 are none.
//   Integers may be written 1000, 1e3 or 1000.0 if that is an integer in range. Booleans are true
//   and false. A string is the text as written, also if it looks like a number or a boolean.
// - Enums are written short and lower-case (cosine) or in full (SCHEDULE_KIND_COSINE), in any case.
// - Text that starts with '{' is JSON, all else is YAML. Anchors, aliases, tags and merge keys are
//   refused, size and depth are bounded: a small file cannot become a large message.
//
// Errors are InvalidArgument / SPEC_INVALID and name origin, line and path of the field, what was
// found and what was wanted; metadata: "file", "line", "field", "found", "expected".
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace penstock {

inline constexpr int64_t kMaxMessageTextBytes = int64_t{1} << 20;

// Replaces `out` by what the file says. NotFound / IO_ERROR if there is no such file; only regular
// files are read.
absl::Status ReadMessageFile(const std::string& path, google::protobuf::Message* out);

// The same for text at hand; `origin` names it in errors ("job.yaml", "standard input").
absl::Status ParseMessageText(absl::string_view text, absl::string_view origin,
                              google::protobuf::Message* out);

// Sets one field: "optimizer.learning_rate" to "1e-5". A value that starts with '[' is read as
// a YAML list, one with '{' as JSON, any other is one scalar. Lists are replaced, maps merged into,
// and setting a member of a oneof unsets the others. `origin` names the source in errors ("--set").
absl::Status SetMessageField(absl::string_view path, absl::string_view value,
                             absl::string_view origin, google::protobuf::Message* out);

}  // namespace penstock
