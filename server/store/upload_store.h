// The uploads that penstockd knows of, in the file of the job store (job_store.h): what was
// announced, and whether it is complete. How many bytes there are is what lies in the files
// (upload_files.h). Each change is one transaction with the reply of the call.
// Belongs to the control thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/transfer_service.pb.h"
#include "server/store/job_store.h"

namespace penstock::server {

struct StoredUpload {
  int64_t row = 0;         // ascending in order of creation
  int64_t bytes = 0;       // announced, of all files
  v1::Upload upload = {};  // name, complete, create_time, owner; files where they were asked for
};

class UploadStore {
 public:
  explicit UploadStore(JobStore& store) : database_(store.database()), owners_(store.owners()) {}

  // Tells the owner index of all uploads that there are.
  absl::Status LoadOwners();

  // AlreadyExists / UPLOAD_EXISTS if the name is taken.
  absl::Status Insert(const v1::Upload& upload, int64_t bytes, const RequestRecord* request);
  // With its files. NotFound / UPLOAD_NOT_FOUND.
  absl::StatusOr<StoredUpload> Get(const std::string& name);
  absl::Status SetComplete(const std::string& name, const RequestRecord* request);
  absl::Status Remove(const std::string& name, const RequestRecord* request);
  // Newest first, rows below `before_row`, without files.
  absl::StatusOr<std::vector<StoredUpload>> List(int64_t before_row, int64_t limit);
  // Those that are not complete, oldest first, without files.
  absl::StatusOr<std::vector<StoredUpload>> Incomplete();

  struct Totals {
    int64_t uploads = 0;
    int64_t bytes = 0;  // announced
  };
  absl::StatusOr<Totals> CountAll();

 private:
  Database& database_;
  OwnerIndex& owners_;
};

}  // namespace penstock::server
