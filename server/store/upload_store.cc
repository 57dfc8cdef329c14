#include "server/store/upload_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/access/call.h"
#include "server/reasons.h"

namespace penstock::server {
namespace {

constexpr const char* kSelect = "SELECT row, complete, bytes, message FROM upload ";

absl::Status BadRow() {
  return Error(absl::StatusCode::kDataLoss, reason::kStoreCorrupt,
               "a message in table upload of the job store cannot be read");
}

absl::StatusOr<StoredUpload> Read(const Statement& row) {
  StoredUpload stored{.row = row.Int64(0), .bytes = row.Int64(2)};
  if (!stored.upload.ParseFromString(row.Bytes(3))) return BadRow();
  stored.upload.set_complete(row.Int64(1) != 0);
  return stored;
}

absl::StatusOr<std::vector<StoredUpload>> ReadAll(Statement& list) {
  std::vector<StoredUpload> uploads;
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, list.Step());
    if (!more) return uploads;
    PENSTOCK_ASSIGN_OR_RETURN(uploads.emplace_back(), Read(list));
  }
}

}  // namespace

absl::Status UploadStore::LoadOwners() {
  Statement list(database_, kSelect);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StoredUpload> all, ReadAll(list));
  for (const StoredUpload& stored : all) {
    owners_.Set(stored.upload.name(), stored.upload.owner());
  }
  return absl::OkStatus();
}

absl::Status UploadStore::Insert(const v1::Upload& upload, int64_t bytes,
                                 const RequestRecord* request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(database_));
  Statement find(database_, "SELECT 1 FROM upload WHERE name = ?");
  PENSTOCK_ASSIGN_OR_RETURN(const bool taken, find.Bind(upload.name()).Step());
  if (taken) {
    return Error(absl::StatusCode::kAlreadyExists, reason::kUploadExists,
                 absl::StrCat(upload.name(), " exists; go on with it if it is yours (GetUpload), ",
                              "else choose another upload_id or leave it empty"),
                 {{"upload", upload.name()}, {"field", "upload_id"}});
  }
  v1::Upload message = upload, files;
  files.mutable_files()->Swap(message.mutable_files());
  message.clear_received_bytes();
  PENSTOCK_RETURN_IF_ERROR(
      Statement(database_, "INSERT INTO upload (name, bytes, message, files) VALUES (?, ?, ?, ?)")
          .Bind(upload.name())
          .Bind(bytes)
          .BindBlob(message.SerializeAsString())
          .BindBlob(files.SerializeAsString())
          .Run());
  if (request != nullptr) PENSTOCK_RETURN_IF_ERROR(WriteRequest(database_, *request));
  NameResource(upload.name());
  PENSTOCK_RETURN_IF_ERROR(transaction->Commit());
  owners_.Set(upload.name(), upload.owner());
  return absl::OkStatus();
}

absl::StatusOr<StoredUpload> UploadStore::Get(const std::string& name) {
  Statement find(database_, absl::StrCat("SELECT row, complete, bytes, message, files FROM upload ",
                                         "WHERE name = ?"));
  PENSTOCK_ASSIGN_OR_RETURN(const bool found, find.Bind(name).Step());
  if (!found) {
    return Error(absl::StatusCode::kNotFound, reason::kUploadNotFound,
                 absl::StrCat("there is no ", name,
                              ": it was deleted, or had expired; ListUploads shows what there is"),
                 {{"upload", name}});
  }
  PENSTOCK_ASSIGN_OR_RETURN(StoredUpload stored, Read(find));
  v1::Upload files;
  if (!files.ParseFromString(find.Bytes(4))) return BadRow();
  stored.upload.mutable_files()->Swap(files.mutable_files());
  return stored;
}

absl::Status UploadStore::SetComplete(const std::string& name, const RequestRecord* request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(database_));
  PENSTOCK_RETURN_IF_ERROR(
      Statement(database_, "UPDATE upload SET complete = 1 WHERE name = ?").Bind(name).Run());
  if (request != nullptr) PENSTOCK_RETURN_IF_ERROR(WriteRequest(database_, *request));
  return transaction->Commit();
}

absl::Status UploadStore::Remove(const std::string& name, const RequestRecord* request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto transaction, Transaction::Begin(database_));
  PENSTOCK_RETURN_IF_ERROR(
      Statement(database_, "DELETE FROM upload WHERE name = ?").Bind(name).Run());
  if (request != nullptr) PENSTOCK_RETURN_IF_ERROR(WriteRequest(database_, *request));
  PENSTOCK_RETURN_IF_ERROR(transaction->Commit());
  owners_.Remove(name);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoredUpload>> UploadStore::List(int64_t before_row, int64_t limit) {
  Statement list(database_, absl::StrCat(kSelect, "WHERE row < ? ORDER BY row DESC LIMIT ?"));
  list.Bind(before_row).Bind(limit);
  return ReadAll(list);
}

absl::StatusOr<std::vector<StoredUpload>> UploadStore::Incomplete() {
  Statement list(database_, absl::StrCat(kSelect, "WHERE complete = 0 ORDER BY row"));
  return ReadAll(list);
}

absl::StatusOr<UploadStore::Totals> UploadStore::CountAll() {
  Statement count(database_, "SELECT COUNT(*), IFNULL(SUM(bytes), 0) FROM upload");
  PENSTOCK_RETURN_IF_ERROR(count.Step().status());
  return Totals{.uploads = count.Int64(0), .bytes = count.Int64(1)};
}

}  // namespace penstock::server
