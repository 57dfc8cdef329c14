// The part of the job store that is about who did what: tokens and the audit log, in the same file.
//
// Every transaction that a client's call makes carries the call's audit entry: the database asks
// for it before each commit, so no statement of another part can leave it out. A call is entered
// once, with its first transaction. Thread-compatible; belongs to the control thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/admin_service.pb.h"
#include "server/access/call.h"
#include "server/store/sqlite.h"

namespace penstock::server {

struct StoredToken {
  int64_t row = 0;  // ascending in order of creation
  std::string hash;
  v1::Token token;
};

class AccessStore : public CommitHook {
 public:
  explicit AccessStore(Database& database) : database_(database) {}

  // ---- Tokens ----
  absl::Status InsertToken(const v1::Token& token, const std::string& hash);
  absl::Status UpdateToken(const v1::Token& token);
  absl::Status SetLastUse(const std::string& name, int64_t unix_seconds);
  // NotFound / TOKEN_NOT_FOUND.
  absl::StatusOr<v1::Token> GetToken(const std::string& name);
  // Oldest first, rows after `after_row`.
  absl::StatusOr<std::vector<StoredToken>> Tokens(int64_t after_row, int64_t limit);

  // ---- The audit log ----
  // Enters the current call now, for one whose effect is not in this database. Before the effect:
  // what cannot be entered must not be done.
  absl::Status EnterCall();
  absl::StatusOr<std::vector<v1::AuditEntry>> AuditEntries(int64_t after, int64_t limit);
  // An entry with sequence 0 and the hash that the first one follows, if there is none.
  absl::StatusOr<v1::AuditEntry> LastAuditEntry();

  absl::Status BeforeCommit() override;
  void AfterCommit() override;

 private:
  Database& database_;
  std::shared_ptr<Call> entered_;  // whose entry is in the transaction that is being committed
};

}  // namespace penstock::server
