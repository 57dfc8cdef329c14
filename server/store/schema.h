// The schema of the job store and every step that led to it.
#pragma once

#include "absl/status/status.h"
#include "server/store/sqlite.h"

namespace penstock::server {

// Brings the file to the newest schema, each step in one transaction that also raises
// user_version. FailedPrecondition / STORE_CORRUPT if the file is of a newer version.
absl::Status MigrateSchema(Database& database);

}  // namespace penstock::server
