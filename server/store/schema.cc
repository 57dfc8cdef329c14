#include "server/store/schema.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock::server {
namespace {

// kSteps[i] makes version i + 1 of version i. A step is never changed once released.
// job.message is the serialized penstock.v1.Job; state and owner are copies of its fields, for
// queries.
constexpr const char* kSteps[] = {
    R"sql(
CREATE TABLE job (
  row INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  state INTEGER NOT NULL,
  worker_deaths INTEGER NOT NULL DEFAULT 0,
  last_event INTEGER NOT NULL DEFAULT 0,
  message BLOB NOT NULL
) STRICT;
CREATE INDEX job_by_state ON job (state, row);
CREATE TABLE attempt (
  job INTEGER NOT NULL REFERENCES job (row) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  acknowledged INTEGER NOT NULL DEFAULT 0,
  outcome BLOB,
  PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE event (
  cursor INTEGER PRIMARY KEY AUTOINCREMENT,
  job INTEGER NOT NULL REFERENCES job (row) ON DELETE CASCADE,
  sequence INTEGER NOT NULL,
  message BLOB NOT NULL,
  UNIQUE (job, sequence)
) STRICT;
CREATE TABLE checkpoint (
  job INTEGER NOT NULL REFERENCES job (row) ON DELETE CASCADE,
  step INTEGER NOT NULL,
  message BLOB NOT NULL,
  PRIMARY KEY (job, step)
) STRICT, WITHOUT ROWID;
CREATE TABLE request (
  method TEXT NOT NULL,
  id TEXT NOT NULL,
  hash TEXT NOT NULL,
  reply BLOB NOT NULL,
  unix_seconds INTEGER NOT NULL,
  PRIMARY KEY (method, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_by_time ON request (unix_seconds);
)sql",
    // token.message is penstock.v1.Token without its last use; audit.message is
    // penstock.v1.AuditEntry.
    R"sql(
ALTER TABLE job ADD COLUMN owner TEXT NOT NULL DEFAULT '';
CREATE INDEX job_by_owner ON job (owner, row);
CREATE TABLE token (
  row INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  hash TEXT NOT NULL UNIQUE,
  last_use_seconds INTEGER NOT NULL DEFAULT 0,
  message BLOB NOT NULL
) STRICT;
CREATE TABLE audit (
  sequence INTEGER PRIMARY KEY,
  message BLOB NOT NULL
) STRICT;
)sql",
    // upload.message is a penstock.v1.Upload without its files; upload.files is one with nothing
    // else.
    R"sql(
CREATE TABLE upload (
  row INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL UNIQUE,
  complete INTEGER NOT NULL DEFAULT 0,
  bytes INTEGER NOT NULL,
  message BLOB NOT NULL,
  files BLOB NOT NULL
) STRICT;
)sql",
    // job.sweep is a copy of its field. device_use has the device time of every attempt that has
    // ended; it stays when the job is deleted.
    R"sql(
ALTER TABLE job ADD COLUMN sweep TEXT NOT NULL DEFAULT '';
CREATE INDEX job_by_sweep ON job (sweep, row);
CREATE TABLE device_use (
  end_unix_ms INTEGER NOT NULL,
  owner TEXT NOT NULL,
  kind INTEGER NOT NULL,
  ms INTEGER NOT NULL
) STRICT;
CREATE INDEX device_use_by_end ON device_use (end_unix_ms);
)sql",
};

absl::StatusOr<int64_t> Version(Database& database) {
  Statement read(database, "PRAGMA user_version");
  PENSTOCK_RETURN_IF_ERROR(read.Step().status());
  return read.Int64(0);
}

}  // namespace

absl::Status MigrateSchema(Database& database) {
  PENSTOCK_ASSIGN_OR_RETURN(int64_t version, Version(database));
  const auto newest = static_cast<int64_t>(std::size(kSteps));
  if (version < 0 || version > newest) {
    return Error(absl::StatusCode::kFailedPrecondition, reason::kStoreCorrupt,
                 absl::StrCat(database.path(), " has schema version ", version,
                              ", this penstockd knows up to ", newest,
                              ". Start the newer penstockd that wrote it, or use another "
                              "state directory"),
                 {{"file", database.path()},
                  {"found", absl::StrCat(version)},
                  {"expected", absl::StrCat(newest)}});
  }
  for (; version < newest; ++version) {
    PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(database));
    PENSTOCK_RETURN_IF_ERROR(database.Execute(kSteps[version]));
    PENSTOCK_RETURN_IF_ERROR(database.Execute(absl::StrCat("PRAGMA user_version = ", version + 1)));
    PENSTOCK_RETURN_IF_ERROR(transaction->Commit());
  }
  return absl::OkStatus();
}

}  // namespace penstock::server
