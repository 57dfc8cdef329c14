#include "server/jobs/admin_manager.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "google/protobuf/util/time_util.h"
#include "server/access/call.h"
#include "server/jobs/page_token.h"
#include "server/jobs/request_checks.h"

namespace penstock::server {
using google::protobuf::util::TimeUtil;
namespace {

constexpr char kTokenList[] = "tokens";
constexpr size_t kMaxComment = 128, kMaxMessage = 256;

absl::Status CheckToken(const v1::CreateTokenRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckUserName(request.user(), "user"));
  PENSTOCK_RETURN_IF_ERROR(CheckText(request.comment(), "comment", kMaxComment));
  if (request.role() < v1::ROLE_VIEWER || request.role() > v1::ROLE_ADMIN) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
                 absl::StrCat("role is ", request.role(), "; expected viewer, user or admin"),
                 {{"field", "role"}, {"found", absl::StrCat(request.role())}});
  }
  if (request.has_expire_time() && request.expire_time() <= TimeUtil::GetCurrentTime()) {
    const std::string found = absl::StrCat(request.expire_time().seconds());
    return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
                 absl::StrCat("expire_time is ", found,
                              " (seconds since 1970), which has passed by the daemon's clock; "
                              "expected a later time, or none"),
                 {{"field", "expire_time"}, {"found", found}});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AdminManager::Load() {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StoredToken> tokens, store_.Tokens(0, INT64_MAX));
  for (const StoredToken& stored : tokens) book_.Add(stored.token, stored.hash);
  return absl::OkStatus();
}

absl::StatusOr<v1::CreateTokenResponse> AdminManager::CreateToken(
    const v1::CreateTokenRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckToken(request));
  v1::CreateTokenResponse response;
  response.set_secret(NewTokenSecret());
  const std::string hash = TokenHash(response.secret());
  v1::Token& token = *response.mutable_token();
  token.set_name(absl::StrCat("tokens/", NewTokenId()));
  token.set_user(request.user());
  token.set_role(request.role());
  token.set_comment(request.comment());
  token.mutable_create_time()->set_seconds(TimeUtil::GetCurrentTime().seconds());
  if (request.has_expire_time()) {
    token.mutable_expire_time()->set_seconds(request.expire_time().seconds());
  }
  NameResource(token.name());
  PENSTOCK_RETURN_IF_ERROR(store_.InsertToken(token, hash));
  book_.Add(token, hash);
  return response;
}

absl::StatusOr<v1::ListTokensResponse> AdminManager::ListTokens(
    const v1::ListTokensRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t size, PageSize(request.page_size()));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t after,
                            ParsePageToken(request.page_token(), kTokenList, /*first=*/0));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<StoredToken> found, store_.Tokens(after, size + 1));
  v1::ListTokensResponse response;
  for (StoredToken& stored : found) {
    if (response.tokens_size() == size) {
      response.set_next_page_token(
          MakePageToken(kTokenList, found[static_cast<size_t>(size) - 1].row));
      break;
    }
    *response.add_tokens() = std::move(stored.token);
  }
  return response;
}

absl::StatusOr<v1::RevokeTokenResponse> AdminManager::RevokeToken(
    const v1::RevokeTokenRequest& request) {
  v1::RevokeTokenResponse response;
  v1::Token& token = *response.mutable_token();
  PENSTOCK_ASSIGN_OR_RETURN(token, store_.GetToken(request.name()));
  if (token.has_revoke_time()) return response;
  token.mutable_revoke_time()->set_seconds(TimeUtil::GetCurrentTime().seconds());
  PENSTOCK_RETURN_IF_ERROR(store_.UpdateToken(token));
  book_.Revoke(token.name());
  return response;
}

absl::StatusOr<v1::ListAuditEntriesResponse> AdminManager::ListAuditEntries(
    const v1::ListAuditEntriesRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t size, PageSize(request.page_size()));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<v1::AuditEntry> entries,
                            store_.AuditEntries(std::max<int64_t>(0, request.after()), size));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::AuditEntry last, store_.LastAuditEntry());
  v1::ListAuditEntriesResponse response;
  for (v1::AuditEntry& entry : entries) *response.add_entries() = std::move(entry);
  response.set_last_sequence(last.sequence());
  response.set_last_hash(last.hash());
  return response;
}

absl::StatusOr<v1::DrainServerResponse> AdminManager::DrainServer(
    const v1::DrainServerRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckText(request.message(), "message", kMaxMessage));
  PENSTOCK_RETURN_IF_ERROR(store_.EnterCall());
  workers_.SetAdminHold(
      request.draining() ? WorkerManager::AdminHold::kHold : WorkerManager::AdminHold::kNone,
      request.draining() ? request.message() : "");
  v1::DrainServerResponse response;
  response.set_status(workers_.admission() == Admission::kOpen ? v1::SERVER_STATUS_SERVING
                                                               : v1::SERVER_STATUS_DRAINING);
  return response;
}

}  // namespace penstock::server
