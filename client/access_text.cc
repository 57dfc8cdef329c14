#include "client/access_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/output.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

constexpr int64_t kMaxPeriodSeconds = int64_t{100} * 365 * 86'400;

std::string RoleText(v1::Role role) {
  const std::string name = v1::Role_Name(role);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "ROLE_"));
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : Printable(text); }

}  // namespace

std::string TokensTable(const google::protobuf::RepeatedPtrField<v1::Token>& tokens) {
  Table table({"TOKEN", "USER", "ROLE", "CREATED", "EXPIRES", "LAST USE", "REVOKED", "COMMENT"});
  for (const v1::Token& token : tokens) {
    table.Add({Printable(token.name()), Printable(token.user()), RoleText(token.role()),
               OrDash(FormatTime(token.create_time())), OrDash(FormatTime(token.expire_time())),
               OrDash(FormatTime(token.last_use_time())), OrDash(FormatTime(token.revoke_time())),
               OrDash(token.comment())});
  }
  return table.ToText();
}

std::string AuditTable(const google::protobuf::RepeatedPtrField<v1::AuditEntry>& entries) {
  Table table({"#", "TIME", "USER", "ROLE", "FROM", "METHOD", "RESOURCE"});
  for (const v1::AuditEntry& entry : entries) {
    const std::string from =
        entry.token().empty() ? entry.peer() : absl::StrCat(entry.peer(), " ", entry.token());
    table.Add({absl::StrCat(entry.sequence()), FormatTime(entry.time()), OrDash(entry.user()),
               RoleText(entry.role()), OrDash(from),
               Printable(absl::StripPrefix(entry.method(), "penstock.v1.")),
               OrDash(entry.resource())});
  }
  return table.ToText();
}

absl::StatusOr<absl::Duration> ParsePeriod(const std::string& text) {
  int64_t unit = 0, count = 0;
  switch (text.empty() ? '\0' : text.back()) {
    case 's':
      unit = 1;
      break;
    case 'm':
      unit = 60;
      break;
    case 'h':
      unit = 3600;
      break;
    case 'd':
      unit = 86'400;
      break;
    default:
      break;
  }
  if (unit > 0 && absl::SimpleAtoi(text.substr(0, text.size() - 1), &count) && count > 0 &&
      count <= kMaxPeriodSeconds / unit) {
    return absl::Seconds(count * unit);
  }
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
               absl::StrCat("--expires: found \"", text, "\", expected a time such as 12h or 30d"));
}

}  // namespace penstock::client
