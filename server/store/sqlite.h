// Thin RAII over the SQLite C API: a connection, statements, transactions, errors as Status.
// Nothing here knows the schema (job_store.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace penstock::server {

class Database;

// Adds to every transaction what belongs into it.
class CommitHook {
 public:
  virtual ~CommitHook() = default;
  // Inside the transaction; an error takes all of it back.
  virtual absl::Status BeforeCommit() = 0;
  // It is on disk.
  virtual void AfterCommit() = 0;
};

// Thread-compatible. Statements must not outlive it.
class Database {
 public:
  // Creates the file if there is none. Symbolic links are not followed.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  // Runs all statements of `sql`, dropping any rows.
  absl::Status Execute(const std::string& sql);
  // Rows that the last statement changed.
  int64_t changes() const;
  const std::string& path() const { return path_; }
  // Null: none. It has to outlive all transactions.
  void set_commit_hook(CommitHook* hook) { commit_hook_ = hook; }
  CommitHook* commit_hook() const { return commit_hook_; }
  sqlite3* raw() const { return raw_; }

  // The error of the last call on this connection. DataLoss / STORE_CORRUPT for a damaged
  // file, ResourceExhausted / DISK_INSUFFICIENT for a full disk, else Internal / IO_ERROR.
  absl::Status LastError(const std::string& doing) const;

 private:
  Database(sqlite3* raw, std::string path) : raw_(raw), path_(std::move(path)) {}
  sqlite3* raw_;
  std::string path_;
  CommitHook* commit_hook_ = nullptr;
};

// One prepared statement. A failed Prepare or Bind is remembered and returned by the next
// Step(), so call sites check once:
//   Statement find(db, "SELECT state FROM job WHERE name = ?");
//   PENSTOCK_ASSIGN_OR_RETURN(bool found, find.Bind(name).Step());
class Statement {
 public:
  Statement(Database& database, std::string_view sql);
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement();

  // Binds the next parameter. Text and blobs are copied.
  Statement& Bind(int64_t value);
  Statement& Bind(std::string_view text);
  Statement& BindBlob(std::string_view bytes);

  // True: there is a row, read it by column from 0. False: done.
  absl::StatusOr<bool> Step();
  // For statements that give no rows.
  absl::Status Run();

  int64_t Int64(int column) const;
  // Text or blob.
  std::string Bytes(int column) const;

 private:
  Database& database_;
  sqlite3_stmt* raw_ = nullptr;
  int next_parameter_ = 1;
  absl::Status status_;
};

// BEGIN IMMEDIATE; rolled back by the destructor unless committed.
class Transaction {
 public:
  static absl::StatusOr<std::unique_ptr<Transaction>> Begin(Database& database);
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction();
  absl::Status Commit();

 private:
  explicit Transaction(Database& database) : database_(database) {}
  Database& database_;
  bool open_ = true;
};

}  // namespace penstock::server
