#include "server/access/method_table.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/status.h"
#include "server/reasons.h"

namespace penstock::server {
namespace {

using enum Effect;
using enum Whose;
constexpr v1::Role kViewer = v1::ROLE_VIEWER, kUser = v1::ROLE_USER, kAdmin = v1::ROLE_ADMIN;

// Looking at data and planning are the user's: they open files that the request names. Exports and
// new jobs read anybody's checkpoint, as all may read, and are the caller's own.
constexpr MethodRule kRules[] = {
    {"penstock.v1.JobService/CreateJob", kUser, kChanges, "", kAnybodys},
    {"penstock.v1.JobService/PlanJob", kUser, kReads, "", kAnybodys},
    {"penstock.v1.JobService/GetJob", kViewer, kReads, "name", kAnybodys},
    {"penstock.v1.JobService/InspectData", kUser, kReads, "", kAnybodys},
    {"penstock.v1.JobService/BuildData", kUser, kReads, "", kAnybodys},
    {"penstock.v1.JobService/ListJobs", kViewer, kReads, "", kAnybodys},
    {"penstock.v1.JobService/CancelJob", kUser, kChanges, "name", kOwners},
    {"penstock.v1.JobService/PauseJob", kUser, kChanges, "name", kOwners},
    {"penstock.v1.JobService/ResumeJob", kUser, kChanges, "name", kOwners},
    {"penstock.v1.JobService/CreateSweep", kUser, kChanges, "", kAnybodys},
    {"penstock.v1.JobService/CancelSweep", kUser, kChanges, "name", kOwners},
    {"penstock.v1.JobService/DeleteJob", kUser, kChanges, "name", kOwners},
    {"penstock.v1.JobService/WatchJobs", kViewer, kReads, "name", kAnybodys},
    {"penstock.v1.JobService/ListJobMetrics", kViewer, kReads, "name", kAnybodys},
    {"penstock.v1.JobService/TraceJob", kViewer, kReads, "name", kAnybodys},

    {"penstock.v1.CheckpointService/ListCheckpoints", kViewer, kReads, "parent", kAnybodys},
    {"penstock.v1.CheckpointService/GetCheckpoint", kViewer, kReads, "name", kAnybodys},
    {"penstock.v1.CheckpointService/SaveCheckpoint", kUser, kChanges, "parent", kOwners},
    {"penstock.v1.CheckpointService/PinCheckpoint", kUser, kChanges, "name", kOwners},
    {"penstock.v1.CheckpointService/DeleteCheckpoint", kUser, kChanges, "name", kOwners},
    {"penstock.v1.CheckpointService/ExportCheckpoint", kUser, kChanges, "spec.checkpoint",
     kAnybodys},

    {"penstock.v1.TransferService/ListFiles", kViewer, kReads, "parent", kAnybodys},
    {"penstock.v1.TransferService/ReadFile", kViewer, kReads, "parent", kAnybodys},
    {"penstock.v1.TransferService/CreateUpload", kUser, kChanges, "", kAnybodys},
    {"penstock.v1.TransferService/WriteUpload", kUser, kBringsBytes, "", kOwners},
    {"penstock.v1.TransferService/GetUpload", kViewer, kReads, "name", kAnybodys},
    {"penstock.v1.TransferService/ListUploads", kViewer, kReads, "", kAnybodys},
    {"penstock.v1.TransferService/FinishUpload", kUser, kChanges, "name", kOwners},
    {"penstock.v1.TransferService/DeleteUpload", kUser, kChanges, "name", kOwners},

    {"penstock.v1.AdminService/GetServerInfo", kViewer, kReads, "", kAnybodys},
    {"penstock.v1.AdminService/ListDevices", kViewer, kReads, "", kAnybodys},
    {"penstock.v1.AdminService/ReleaseDevice", kAdmin, kChanges, "id", kAnybodys},
    {"penstock.v1.AdminService/CalibrateDevice", kAdmin, kChanges, "id", kAnybodys},
    {"penstock.v1.AdminService/DrainServer", kAdmin, kChanges, "", kAnybodys},
    {"penstock.v1.AdminService/CreateToken", kAdmin, kChanges, "", kAnybodys},
    {"penstock.v1.AdminService/ListTokens", kAdmin, kReads, "", kAnybodys},
    {"penstock.v1.AdminService/RevokeToken", kAdmin, kChanges, "name", kAnybodys},
    {"penstock.v1.AdminService/ListAuditEntries", kAdmin, kReads, "", kAnybodys},
};

}  // namespace

std::span<const MethodRule> MethodTable() { return kRules; }

const MethodRule* FindRule(std::string_view method) {
  const auto found = std::find_if(std::begin(kRules), std::end(kRules),
                                  [&](const MethodRule& rule) { return rule.method == method; });
  return found == std::end(kRules) ? nullptr : found;
}

std::string ResourceOf(const MethodRule& rule, const google::protobuf::Message& request) {
  if (rule.resource.empty()) return "";
  const google::protobuf::Message* message = &request;
  const google::protobuf::FieldDescriptor* field = nullptr;
  const std::vector<std::string> path = absl::StrSplit(std::string(rule.resource), '.');
  for (const std::string& part : path) {
    if (field != nullptr) message = &message->GetReflection()->GetMessage(*message, field);
    field = message->GetDescriptor()->FindFieldByName(part);
    if (field == nullptr) return "";
  }
  return message->GetReflection()->GetString(*message, field);
}

absl::Status CheckRole(const MethodRule& rule, const v1::Caller& caller) {
  if (caller.role() >= rule.role) return absl::OkStatus();
  const std::string found = RoleName(caller.role()), expected = RoleName(rule.role);
  const std::string method(rule.method);
  return Error(absl::StatusCode::kPermissionDenied, reason::kRoleInsufficient,
               absl::StrCat(method, " needs the role ", expected, ", and ", caller.user(),
                            " has the role ", found, "; ask an admin for a token of that role"),
               {{"method", method}, {"found", found}, {"expected", expected}});
}

absl::Status CheckOwner(const v1::Caller& caller, const std::string& resource,
                        const std::string& owner) {
  if (caller.role() >= kAdmin || (!owner.empty() && owner == caller.user())) {
    return absl::OkStatus();
  }
  const std::string whose = owner.empty() ? "the daemon's own user" : owner;
  return Error(absl::StatusCode::kPermissionDenied, reason::kNotOwner,
               absl::StrCat(resource, " belongs to ", whose, ", and ", caller.user(),
                            " may change only what is their own; ask ", whose, " or an admin"),
               {{"resource", resource}, {"owner", owner}, {"user", caller.user()}});
}

std::string RoleName(v1::Role role) {
  const std::string& name = v1::Role_Name(role);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "ROLE_"));
}

std::optional<v1::Role> ParseRole(std::string_view name) {
  for (const v1::Role role : {kViewer, kUser, kAdmin}) {
    if (name == RoleName(role)) return role;
  }
  return std::nullopt;
}

}  // namespace penstock::server
