// The files of uploads, while they come in.
//
// What a file has up to its size counts as received, also after a kill -9: bytes are only ever
// added at the end, and the whole is hashed before it counts as complete. When an upload expires
// follows from the time of its directory, which every piece sets. Nothing here keeps a file open
// between two calls, so a client that has gone quiet costs nothing, and one that is deleted
// meanwhile takes no more room.
//
// Belongs to the queue `transfers`, but for LastActivity().
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/provenance/sha256.h"
#include "engine/train/rooted_file.h"
#include "penstock/v1/transfer_service.pb.h"
#include "server/store/state_directory.h"

namespace penstock::server {

class UploadFiles {
 public:
  explicit UploadFiles(const StateDirectory& directory) : directory_(directory) {}

  // Of each of `upload.files`, in their order; of a complete one what was announced.
  absl::StatusOr<std::vector<int64_t>> Received(const v1::Upload& upload) const;

  // Of all files of one that comes in; 0 if it does not any more.
  int64_t ReceivedBytes(const std::string& upload) const;

  // Adds `data` to the file if `offset` is where it ends, and gives its new size. OutOfRange /
  // UPLOAD_OFFSET with the right offset; InvalidArgument / REQUEST_INVALID beyond what was
  // announced; NotFound / UPLOAD_NOT_FOUND if the upload is gone; ResourceExhausted /
  // DISK_INSUFFICIENT on a full disk, with what was written kept.
  absl::StatusOr<int64_t> Append(const std::string& upload, const v1::FileEntry& file,
                                 int64_t offset, std::string_view data);

  // Says that the bytes of this file, all of them, have the announced hash: who received them has
  // hashed them.
  void NoteVerified(const std::string& upload, const std::string& path);
  // The upload is deleted.
  void Forget(const std::string& upload) { verified_.erase(upload); }

  // Unix seconds; nothing if the upload does not come in any more. Any thread.
  static std::optional<time_t> LastActivity(const StateDirectory& directory,
                                            const std::string& upload);

 private:
  friend class UploadCheck;
  const StateDirectory& directory_;
  // Paths of each upload.
  std::map<std::string, std::set<std::string>> verified_;
};

// FinishUpload's work, in steps, so that a large one does not hold up other transfers: every file
// there, of its size and hash, on the device, and the directory in its place.
//
//   UploadCheck check(files, upload);
//   while (true) { ASSIGN(done, check.Step()); if (done) break; }
class UploadCheck {
 public:
  UploadCheck(UploadFiles& files, v1::Upload upload);

  // True: the upload is in its place and durable. FailedPrecondition / UPLOAD_INCOMPLETE if bytes
  // are missing; DataLoss / UPLOAD_CORRUPT if a hash differs, of which file nothing is left then.
  absl::StatusOr<bool> Step();

 private:
  absl::Status CheckSizes();
  absl::Status BeginFile(const v1::FileEntry& file);
  // True: it is hashed and on the device.
  absl::StatusOr<bool> ReadSome(const v1::FileEntry& file);
  absl::Status EndFile(const v1::FileEntry& file);
  absl::Status Publish();

  UploadFiles& files_;
  const v1::Upload upload_;
  int next_ = -1;        // file; -1: sizes were not looked at yet
  FileDescriptor open_;  // of file next_, while it is read
  int64_t offset_ = 0;
  Sha256 hash_;
};

}  // namespace penstock::server
