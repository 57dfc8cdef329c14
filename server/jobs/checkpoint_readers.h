// Jobs that read a checkpoint of another job: exports, and jobs that start from one. While such a
// job has not ended, a note beside the checkpoint keeps it from being removed, by whomever
// (engine/train/checkpoint_directory.h). Belongs to the control thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"
#include "server/jobs/job_table.h"
#include "server/jobs/request_checks.h"
#include "server/store/state_directory.h"

namespace penstock::server {

// Who holds a checkpoint that clients fetch the files of (file_sources.h): no job's id.
inline constexpr char kDownloadHolder[] = "download.";

// The checkpoint that the job reads; nothing if it reads none.
std::optional<CheckpointName> CheckpointReadBy(const v1::Job& job);

class CheckpointReaders {
 public:
  explicit CheckpointReaders(const StateDirectory& directory) : directory_(directory) {}

  // Before the job is stored. NotFound / CHECKPOINT_NOT_FOUND if the checkpoint is gone.
  absl::Status Begin(const v1::Job& job) const;
  // After it has ended. A note that cannot be removed is removed by the next Recover().
  void End(const v1::Job& job) const;
  // Removes the notes of jobs that have ended, or that are not there, beside the checkpoints of
  // `jobs`. Once, at start.
  void Recover(const std::vector<std::string>& jobs, JobTable& table) const;

 private:
  const StateDirectory& directory_;
};

}  // namespace penstock::server
