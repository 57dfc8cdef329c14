// Uploads: the operations behind TransferService's Create, List, Finish and Delete, and their
// expiry. What lies in the files is upload_files.h's, on another thread; so creating one has two
// halves, as a job has.
// Belongs to the control thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/transfer_service.pb.h"
#include "server/jobs/job_table.h"
#include "server/store/state_directory.h"
#include "server/store/upload_store.h"

namespace penstock::server {

struct UploadOptions {
  int64_t max_bytes = 0;            // that all of them may take, as announced
  std::chrono::seconds lifetime{};  // of one that is not complete, from its last piece on
};

class UploadManager {
 public:
  UploadManager(UploadOptions options, const StateDirectory& directory, JobTable& table)
      : options_(options), directory_(directory), table_(table), store_(table.store()) {}

  // The stored reply; or what it takes to know whether there is room: the uploads that still come
  // in, and the bytes that they have announced.
  struct Begun {
    std::optional<v1::CreateUploadResponse> reply = {};
    std::map<std::string, int64_t> incoming = {};
  };
  absl::StatusOr<Begun> BeginCreate(const v1::CreateUploadRequest& request);
  // `outstanding_bytes`: what those have yet to send. ResourceExhausted / DISK_INSUFFICIENT or
  // UPLOAD_LIMIT.
  absl::StatusOr<v1::CreateUploadResponse> FinishCreate(const v1::CreateUploadRequest& request,
                                                        int64_t outstanding_bytes);

  // With its files and times, without received_bytes.
  absl::StatusOr<v1::Upload> Get(const std::string& name);
  absl::StatusOr<v1::ListUploadsResponse> List(const v1::ListUploadsRequest& request);

  // The stored reply, if any.
  absl::StatusOr<std::optional<v1::FinishUploadResponse>> BeginFinish(
      const v1::FinishUploadRequest& request);
  // After the files are in their place.
  absl::StatusOr<v1::FinishUploadResponse> SetComplete(const v1::FinishUploadRequest& request);

  // The files then lie in the trash; emptying it is the caller's.
  absl::StatusOr<v1::DeleteUploadResponse> Delete(const v1::DeleteUploadRequest& request);
  // Deletes what has expired, and names it.
  std::vector<std::string> DeleteExpired();

  // The directory of a complete upload. NotFound / UPLOAD_NOT_FOUND, FailedPrecondition /
  // UPLOAD_INCOMPLETE.
  absl::StatusOr<std::string> DirectoryOf(const std::string& name);
  // The same errors for any upload that a spec starts from, or whose directory it has paths in.
  absl::Status CheckUsable(const v1::JobSpec& spec);

  // Makes rows and directories agree again after a crash. Once, at start.
  absl::Status Recover();

 private:
  void AddTimes(v1::Upload& upload) const;
  absl::Status Discard(const std::string& name) const;
  absl::Status CheckNotInUse(const std::string& name);
  // Names of the uploads that a spec starts from, or has paths in.
  std::set<std::string> UsedBy(const v1::JobSpec& spec) const;

  const UploadOptions options_;
  const StateDirectory& directory_;
  JobTable& table_;
  UploadStore store_;
};

}  // namespace penstock::server
