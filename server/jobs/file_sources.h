// What TransferService reads files from: checkpoints, uploads, exported directories, by the names
// of ListFilesRequest.parent.
//
// A checkpoint that is being read is held like one that a job reads
// (engine/train/checkpoint_directory.h), so retention leaves it alone: from the first file on until
// a minute after the last, since files are fetched one after the other, and by clients whose
// connections break. Whoever asks for its deletion waits for open reads only. Belongs to the
// control thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/transfer_service.pb.h"
#include "server/jobs/job_table.h"
#include "server/jobs/request_checks.h"
#include "server/jobs/task_queue.h"
#include "server/jobs/upload_manager.h"
#include "server/store/state_directory.h"

namespace penstock::server {

struct FileSource {
  std::string directory;
  // Of an upload: its files, whose hashes are on record.
  std::optional<v1::Upload> upload = {};
  // An exported directory lies where others may write: it counts only inside these roots.
  bool check_roots = false;
};

class FileSources {
 public:
  FileSources(const StateDirectory& directory, JobTable& table, UploadManager& uploads,
              TaskQueue& control)
      : directory_(directory), table_(table), uploads_(uploads), control_(control) {}

  // InvalidArgument / REQUEST_INVALID for no such kind of name; NotFound with the reason of the
  // thing; FailedPrecondition / UPLOAD_INCOMPLETE.
  absl::StatusOr<FileSource> Find(const std::string& parent);
  // The same, and holds it, if it is a checkpoint, until as many calls of Close().
  absl::StatusOr<FileSource> Open(const std::string& parent);
  void Close(const std::string& parent);

  // Lets go of a checkpoint that is held for nobody's open read.
  void ReleaseIdle(const CheckpointName& name);
  // The same for all of a job. FailedPrecondition / CHECKPOINT_IN_USE if one is being read.
  absl::Status ReleaseAll(const std::string& job);

 private:
  struct Held {
    CheckpointName name;
    int64_t open = 0;
    uint64_t use = 0;  // how often it was opened
  };
  absl::StatusOr<FileSource> FindExport(const std::string& parent, size_t middle);
  void Release(const std::string& parent);

  const StateDirectory& directory_;
  JobTable& table_;
  UploadManager& uploads_;
  TaskQueue& control_;
  std::map<std::string, Held> held_;  // by name of the checkpoint
};

}  // namespace penstock::server
