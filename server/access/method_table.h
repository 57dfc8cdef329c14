// What every RPC of package penstock.v1 asks of its caller, as data. A method that is not here is
// let in for nobody, and a test holds the table to the descriptors of all services.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "penstock/v1/admin_service.pb.h"

namespace penstock::server {

enum class Effect : uint8_t {
  kReads,
  // Changes something: leaves an audit entry.
  kChanges,
  // Brings bytes of an upload, whose beginning and end are on the audit log with their hashes. The
  // upload's name comes in the stream, so the service itself calls CheckOwner().
  kBringsBytes,
};
enum class Whose : uint8_t {
  kAnybodys,
  kOwners,  // its owner's and admins'
};

struct MethodRule {
  std::string_view method;  // "penstock.v1.JobService/CancelJob"
  v1::Role role;            // at least
  Effect effect;
  // Field of the request, "spec.checkpoint" inside a message, that names what it is about. Empty:
  // the call makes it, or is about the daemon.
  std::string_view resource;
  Whose whose;
};

std::span<const MethodRule> MethodTable();
// Null for a method that is not there.
const MethodRule* FindRule(std::string_view method);

// The text of rule.resource in the request, or "".
std::string ResourceOf(const MethodRule& rule, const google::protobuf::Message& request);

// PermissionDenied / ROLE_INSUFFICIENT.
absl::Status CheckRole(const MethodRule& rule, const v1::Caller& caller);
// PermissionDenied / NOT_OWNER. An empty owner stands for the daemon's socket: admins alone.
absl::Status CheckOwner(const v1::Caller& caller, const std::string& resource,
                        const std::string& owner);

// "viewer"
std::string RoleName(v1::Role role);
// Nothing unless it is "viewer", "user" or "admin".
std::optional<v1::Role> ParseRole(std::string_view name);

}  // namespace penstock::server
