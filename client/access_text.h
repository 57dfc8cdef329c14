// Tokens and audit entries as text, and the times that people give to tokens.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "penstock/v1/admin_service.pb.h"

namespace penstock::client {

std::string TokensTable(const google::protobuf::RepeatedPtrField<v1::Token>& tokens);
std::string AuditTable(const google::protobuf::RepeatedPtrField<v1::AuditEntry>& entries);

// "90s", "15m", "12h", "30d". InvalidArgument / REQUEST_INVALID otherwise.
absl::StatusOr<absl::Duration> ParsePeriod(const std::string& text);

}  // namespace penstock::client
