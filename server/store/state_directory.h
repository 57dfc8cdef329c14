// Where everything lies in the state directory.
//
//   penstockd.lock  jobs.db  endpoint.json  penstock.sock  worker.sock
//   signing.key                            Ed25519 seed, made at the first start
//   token_cache/
//   jobs/{id}/worker.lock  metrics.seg  checkpoints/{step}/
//   jobs/{id}/attempts/{n}/assignment.pb  worker.log  outcome.pb
//   jobs/{id}/attempts/{n}/trace.json      the last that was asked for
//   incoming/{id}/                         of uploads, while they come
//   uploads/{id}/                          of those that are complete
//   trash/                                 of deleted jobs and uploads, on its way out
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock::server {

// "NFS" or such for an f_type of statfs(2) whose files other machines may have open: there neither
// locks nor the database's journal can be relied on. Null for others.
const char* SharedFileSystemName(int64_t type);

class StateDirectory {
 public:
  // Creates the directory (0700) and its parts. Refuses one that other users may enter, and one on
  // a file system that several machines share.
  static absl::StatusOr<StateDirectory> Prepare(const std::string& path);

  const std::string& path() const { return path_; }
  std::string Lock() const { return path_ + "/penstockd.lock"; }
  std::string Database() const { return path_ + "/jobs.db"; }
  std::string Endpoint() const { return path_ + "/endpoint.json"; }
  std::string WorkerSocket() const { return path_ + "/worker.sock"; }
  std::string SigningKey() const { return path_ + "/signing.key"; }
  std::string Uploads() const { return path_ + "/uploads"; }
  std::string TokenCache() const { return path_ + "/token_cache"; }

  // `job` is jobs/{id}, already checked.
  std::string Job(const std::string& job) const { return path_ + "/" + job; }
  std::string WorkerLock(const std::string& job) const { return Job(job) + "/worker.lock"; }
  std::string Metrics(const std::string& job) const { return Job(job) + "/metrics.seg"; }
  std::string Checkpoints(const std::string& job) const { return Job(job) + "/checkpoints"; }
  std::string Attempt(const std::string& job, int32_t attempt) const;
  std::string Log(const std::string& job, int32_t attempt) const {
    return Attempt(job, attempt) + "/worker.log";
  }
  std::string Outcome(const std::string& job, int32_t attempt) const {
    return Attempt(job, attempt) + "/outcome.pb";
  }
  std::string Assignment(const std::string& job, int32_t attempt) const {
    return Attempt(job, attempt) + "/assignment.pb";
  }

  std::string Trace(const std::string& job, int32_t attempt) const {
    return Attempt(job, attempt) + "/trace.json";
  }

  // `upload` is uploads/{id}, already checked.
  std::string Upload(const std::string& upload) const { return path_ + "/" + upload; }
  std::string Incoming(const std::string& upload) const;
  // Where its files come in. Fine if it is there.
  absl::Status MakeIncoming(const std::string& upload) const;
  // From incoming/ to uploads/, durably. Fine if it was done before.
  absl::Status PublishUpload(const std::string& upload) const;

  absl::Status MakeAttempt(const std::string& job, int32_t attempt) const;

  // Moves what lies there into trash/, at once however large it is. Nothing there is fine.
  absl::Status DiscardPath(const std::string& path) const;
  // Moves a job's directory into trash/. No directory is fine.
  absl::Status Discard(const std::string& job) const;
  // Discards directories of jobs/ that are not in `known` (names jobs/{id}): what a crash left
  // between deleting a job's row and its files.
  absl::Status DiscardUnknown(const std::set<std::string>& known) const;
  // The same for uploads/ and incoming/.
  absl::Status DiscardUnknownUploads(const std::set<std::string>& known) const;
  // Deletes what lies in trash/. Slow; never follows symbolic links.
  void EmptyTrash() const;

 private:
  explicit StateDirectory(std::string path) : path_(std::move(path)) {}
  // What lies in `folder` and has no name `kind`{entry} in `known`.
  absl::Status DiscardUnknown(const std::string& folder, const std::string& kind,
                              const std::set<std::string>& known) const;
  std::string path_;
};

// Writes under a temporary name, fsyncs, renames, fsyncs the directory.
absl::Status WriteFileDurably(const std::string& path, std::string_view bytes);
// NotFound if there is none; refuses more than `max_bytes` and anything but a regular file.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t max_bytes);

}  // namespace penstock::server
