// What admins ask for: tokens, the audit log, holding the queue. Belongs to the control thread.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/admin_service.pb.h"
#include "server/access/token_book.h"
#include "server/jobs/worker_manager.h"
#include "server/store/access_store.h"

namespace penstock::server {

class AdminManager {
 public:
  AdminManager(AccessStore& store, TokenBook& book, WorkerManager& workers)
      : store_(store), book_(book), workers_(workers) {}

  // Fills the book with the tokens of the store; once, at start.
  absl::Status Load();

  // InvalidArgument / REQUEST_INVALID for a user, role or time that cannot be.
  absl::StatusOr<v1::CreateTokenResponse> CreateToken(const v1::CreateTokenRequest& request);
  absl::StatusOr<v1::ListTokensResponse> ListTokens(const v1::ListTokensRequest& request);
  // NotFound / TOKEN_NOT_FOUND.
  absl::StatusOr<v1::RevokeTokenResponse> RevokeToken(const v1::RevokeTokenRequest& request);
  absl::StatusOr<v1::ListAuditEntriesResponse> ListAuditEntries(
      const v1::ListAuditEntriesRequest& request);
  // As AccessStore.
  absl::Status EnterCall() { return store_.EnterCall(); }
  absl::StatusOr<v1::DrainServerResponse> DrainServer(const v1::DrainServerRequest& request);

 private:
  AccessStore& store_;
  TokenBook& book_;
  WorkerManager& workers_;
};

}  // namespace penstock::server
