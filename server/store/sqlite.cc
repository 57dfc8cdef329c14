#include "server/store/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/fault/fault_point.h"

namespace penstock::server {

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path) {
  // SQLite makes files for everybody to read; it gives its WAL the mode of the database.
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd >= 0) close(fd);
  sqlite3* raw = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                    SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  const int result = sqlite3_open_v2(path.c_str(), &raw, flags, nullptr);
  std::unique_ptr<Database> database(new Database(raw, path));
  if (result != SQLITE_OK) return database->LastError("cannot open");
  return database;
}

Database::~Database() { sqlite3_close(raw_); }

absl::Status Database::Execute(const std::string& sql) {
  if (sqlite3_exec(raw_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return LastError(sql.substr(0, 80));
  }
  return absl::OkStatus();
}

int64_t Database::changes() const { return sqlite3_changes64(raw_); }

absl::Status Database::LastError(const std::string& doing) const {
  const int code = raw_ == nullptr ? SQLITE_NOMEM : sqlite3_extended_errcode(raw_);
  const char* text = raw_ == nullptr ? "out of memory" : sqlite3_errmsg(raw_);
  const ErrorMetadata metadata = {{"file", path_}, {"sqlite_code", absl::StrCat(code)}};
  const std::string message = absl::StrCat(path_, ": ", doing, ": ", text);
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Error(absl::StatusCode::kDataLoss, reason::kStoreCorrupt, message, metadata);
    case SQLITE_FULL:
      return Error(absl::StatusCode::kResourceExhausted, reason::kDiskInsufficient, message,
                   metadata);
    default:
      return Error(absl::StatusCode::kInternal, reason::kIoError, message, metadata);
  }
}

Statement::Statement(Database& database, std::string_view sql) : database_(database) {
  if (sqlite3_prepare_v2(database.raw(), sql.data(), static_cast<int>(sql.size()), &raw_,
                         nullptr) != SQLITE_OK) {
    status_ = database.LastError(std::string(sql));
  }
}

Statement::~Statement() { sqlite3_finalize(raw_); }

Statement& Statement::Bind(int64_t value) {
  if (status_.ok() && sqlite3_bind_int64(raw_, next_parameter_++, value) != SQLITE_OK) {
    status_ = database_.LastError("cannot bind a number");
  }
  return *this;
}

Statement& Statement::Bind(std::string_view text) {
  if (status_.ok() && sqlite3_bind_text64(raw_, next_parameter_++, text.data(), text.size(),
                                          SQLITE_TRANSIENT, SQLITE_UTF8) != SQLITE_OK) {
    status_ = database_.LastError("cannot bind a text");
  }
  return *this;
}

Statement& Statement::BindBlob(std::string_view bytes) {
  // A null pointer would bind NULL, not the empty blob.
  const char* data = bytes.data() == nullptr ? "" : bytes.data();
  if (status_.ok() && sqlite3_bind_blob64(raw_, next_parameter_++, data, bytes.size(),
                                          SQLITE_TRANSIENT) != SQLITE_OK) {
    status_ = database_.LastError("cannot bind a blob");
  }
  return *this;
}

absl::StatusOr<bool> Statement::Step() {
  if (!status_.ok()) return status_;
  switch (sqlite3_step(raw_)) {
    case SQLITE_ROW:
      return true;
    case SQLITE_DONE:
      return false;
    default:
      return database_.LastError(sqlite3_sql(raw_));
  }
}

absl::Status Statement::Run() { return Step().status(); }

int64_t Statement::Int64(int column) const { return sqlite3_column_int64(raw_, column); }

std::string Statement::Bytes(int column) const {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(raw_, column));
  const int size = sqlite3_column_bytes(raw_, column);
  return data == nullptr ? std::string() : std::string(data, static_cast<size_t>(size));
}

absl::StatusOr<std::unique_ptr<Transaction>> Transaction::Begin(Database& database) {
  PENSTOCK_RETURN_IF_ERROR(database.Execute("BEGIN IMMEDIATE"));
  return std::unique_ptr<Transaction>(new Transaction(database));
}

Transaction::~Transaction() {
  // SQLite has rolled back by itself after some errors; then this one fails, which is fine.
  if (open_) database_.Execute("ROLLBACK").IgnoreError();
}

absl::Status Transaction::Commit() {
  CommitHook* const hook = database_.commit_hook();
  if (hook != nullptr) PENSTOCK_RETURN_IF_ERROR(hook->BeforeCommit());
  FaultPoint("store.before_commit");
  PENSTOCK_RETURN_IF_ERROR(database_.Execute("COMMIT"));
  open_ = false;
  if (hook != nullptr) hook->AfterCommit();
  FaultPoint("store.after_commit");
  return absl::OkStatus();
}

}  // namespace penstock::server
