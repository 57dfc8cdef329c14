// What must be true of every answer, whatever was asked.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"
#include "tests/server/raw_call.h"

namespace penstock::fuzz {

// Of a reader or check of ours: the refusal says something, in UTF-8, and why, and is no bug of
// ours by its own account.
absl::Status CheckReason(const absl::Status& refusal, std::string_view input);

// Of a call: replies of the method's type, or a status as docs/errors.md promises. A request that
// is no message of the method's type, and a method that is not there, are refused by gRPC itself,
// which knows no reasons.
absl::Status CheckReply(const server::RawReply& reply,
                        const google::protobuf::MethodDescriptor& method, bool parses,
                        std::string_view input);

}  // namespace penstock::fuzz
