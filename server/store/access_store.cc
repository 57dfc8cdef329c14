#include "server/store/access_store.h"

#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/access/audit_chain.h"
#include "server/reasons.h"

namespace penstock::server {
namespace {

absl::Status BadRow(const char* table) {
  return Error(absl::StatusCode::kDataLoss, reason::kStoreCorrupt,
               absl::StrCat("a message in table ", table, " of the job store cannot be read"));
}

absl::StatusOr<StoredToken> ReadToken(const Statement& row) {
  StoredToken stored{.row = row.Int64(0), .hash = row.Bytes(1), .token = {}};
  if (!stored.token.ParseFromString(row.Bytes(3))) return BadRow("token");
  if (row.Int64(2) != 0) stored.token.mutable_last_use_time()->set_seconds(row.Int64(2));
  return stored;
}
constexpr const char* kSelectToken = "SELECT row, hash, last_use_seconds, message FROM token ";

v1::AuditEntry EntryOf(const Call& call, const v1::AuditEntry& last) {
  v1::AuditEntry entry;
  entry.set_sequence(last.sequence() + 1);
  entry.mutable_time()->set_seconds(static_cast<int64_t>(time(nullptr)));
  entry.set_user(call.user());
  entry.set_role(call.identity.caller.role());
  if (call.identity.token != nullptr) entry.set_token(call.identity.token->name);
  entry.set_peer(call.peer);
  entry.set_method(call.method);
  entry.set_resource(call.resource);
  entry.set_request_sha256(call.request_sha256);
  entry.set_hash(AuditHash(last.hash(), entry));
  return entry;
}

}  // namespace

// ---- Tokens ----

absl::Status AccessStore::InsertToken(const v1::Token& token, const std::string& hash) {
  PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(database_));
  PENSTOCK_RETURN_IF_ERROR(
      Statement(database_, "INSERT INTO token (name, hash, message) VALUES (?, ?, ?)")
          .Bind(token.name())
          .Bind(hash)
          .BindBlob(token.SerializeAsString())
          .Run());
  return transaction->Commit();
}

absl::Status AccessStore::UpdateToken(const v1::Token& token) {
  v1::Token stored = token;
  stored.clear_last_use_time();  // has a column of its own
  PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(database_));
  PENSTOCK_RETURN_IF_ERROR(Statement(database_, "UPDATE token SET message = ? WHERE name = ?")
                               .BindBlob(stored.SerializeAsString())
                               .Bind(token.name())
                               .Run());
  return transaction->Commit();
}

absl::Status AccessStore::SetLastUse(const std::string& name, int64_t unix_seconds) {
  return Statement(database_, "UPDATE token SET last_use_seconds = ? WHERE name = ?")
      .Bind(unix_seconds)
      .Bind(name)
      .Run();
}

absl::StatusOr<v1::Token> AccessStore::GetToken(const std::string& name) {
  Statement find(database_, absl::StrCat(kSelectToken, "WHERE name = ?"));
  PENSTOCK_ASSIGN_OR_RETURN(const bool found, find.Bind(name).Step());
  if (!found) {
    return Error(absl::StatusCode::kNotFound, reason::kTokenNotFound,
                 absl::StrCat("there is no ", name, "; ListTokens shows what there is"),
                 {{"token", name}});
  }
  PENSTOCK_ASSIGN_OR_RETURN(StoredToken stored, ReadToken(find));
  return std::move(stored.token);
}

absl::StatusOr<std::vector<StoredToken>> AccessStore::Tokens(int64_t after_row, int64_t limit) {
  Statement list(database_, absl::StrCat(kSelectToken, "WHERE row > ? ORDER BY row LIMIT ?"));
  list.Bind(after_row).Bind(limit);
  std::vector<StoredToken> tokens;
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, list.Step());
    if (!more) return tokens;
    PENSTOCK_ASSIGN_OR_RETURN(StoredToken stored, ReadToken(list));
    tokens.push_back(std::move(stored));
  }
}

// ---- The audit log ----

absl::StatusOr<v1::AuditEntry> AccessStore::LastAuditEntry() {
  Statement find(database_, "SELECT message FROM audit ORDER BY sequence DESC LIMIT 1");
  PENSTOCK_ASSIGN_OR_RETURN(const bool found, find.Step());
  v1::AuditEntry entry;
  if (!found) {
    entry.set_hash(FirstAuditHash());
  } else if (!entry.ParseFromString(find.Bytes(0))) {
    return BadRow("audit");
  }
  return entry;
}

absl::StatusOr<std::vector<v1::AuditEntry>> AccessStore::AuditEntries(int64_t after,
                                                                      int64_t limit) {
  Statement list(database_,
                 "SELECT message FROM audit WHERE sequence > ? ORDER BY sequence LIMIT ?");
  list.Bind(after).Bind(limit);
  std::vector<v1::AuditEntry> entries;
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, list.Step());
    if (!more) return entries;
    if (!entries.emplace_back().ParseFromString(list.Bytes(0))) return BadRow("audit");
  }
}

absl::Status AccessStore::EnterCall() {
  PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(database_));
  return transaction->Commit();
}

absl::Status AccessStore::BeforeCommit() {
  entered_ = nullptr;
  std::shared_ptr<Call> call = CurrentCall();
  if (call == nullptr || !call->changes || call->audited) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const v1::AuditEntry last, LastAuditEntry());
  const v1::AuditEntry entry = EntryOf(*call, last);
  PENSTOCK_RETURN_IF_ERROR(
      Statement(database_, "INSERT INTO audit (sequence, message) VALUES (?, ?)")
          .Bind(entry.sequence())
          .BindBlob(entry.SerializeAsString())
          .Run());
  entered_ = std::move(call);
  return absl::OkStatus();
}

void AccessStore::AfterCommit() {
  if (entered_ != nullptr) entered_->audited = true;
  entered_ = nullptr;
}

}  // namespace penstock::server
