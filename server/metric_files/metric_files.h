// A job's metric points for tools that read files: beside metrics.seg, which is the daemon's own,
//
//   jobs/{id}/metrics.jsonl    a line a point, StepMetrics in proto3 JSON; of two lines of one
//   step, the later
//                              counts, as in ListJobMetrics
//   jobs/{id}/tensorboard/     an event file an attempt: tensorboard --logdir
//
// Both are copies, written behind metrics.seg and never read for anything but how far they are: a
// tail that a crash tore is cut and written again, and a full disk costs only them, until it has
// room. Writing as training goes on, rather than exporting on demand, is what TensorBoard needs to
// be live, and leaves a plain text of the run to who has no daemon any more. A daemon that is
// killed in the second after a job has ended may leave its copies that second short.
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
#include "penstock/v1/job.pb.h"
#include "server/metric_files/append_file.h"
#include "server/store/state_directory.h"

namespace penstock::server {

// The copies of one job. Used by one thread at a time.
class JobMetricFiles {
 public:
  // Finds how far the copies are.
  static absl::StatusOr<JobMetricFiles> Open(const std::string& job_directory);

  // Copies at most `max_points` of those that are new; true if there may be more.
  absl::StatusOr<bool> CopyNew(int64_t max_points);

 private:
  JobMetricFiles(std::string directory, AppendFile lines, int64_t lines_there)
      : directory_(std::move(directory)), lines_(std::move(lines)), lines_there_(lines_there) {}
  absl::Status Copy(const v1::StepMetrics& point, int64_t index);
  absl::Status BeginAttempt(const v1::StepMetrics& point);

  std::string directory_;
  AppendFile lines_;
  int64_t lines_there_;  // when it was opened
  int64_t index_ = 0;    // of the next record of metrics.seg, and its place
  int64_t offset_ = 0;
  // Of the attempt whose points are being copied:
  std::optional<AppendFile> events_;
  int32_t attempt_ = 0;
  int64_t events_there_ = 0;  // when it was opened
  int64_t events_index_ = 0;
};

// Those of all jobs that have something to copy. Belongs to the queue `streams`.
class MetricFiles {
 public:
  explicit MetricFiles(const StateDirectory& directory) : directory_(directory) {}

  // Copies what is new of `jobs`, some thousand points a job. A job that is no longer among them is
  // followed until its copies are whole. Call every second or so.
  void Follow(const std::set<std::string>& jobs);

 private:
  using Clock = std::chrono::steady_clock;
  struct Followed {
    std::optional<JobMetricFiles> files;
    Clock::time_point not_before;  // after a failure
  };
  // True if there was nothing more to copy.
  bool CatchUp(const std::string& job, Followed& followed);

  const StateDirectory& directory_;
  std::map<std::string, Followed> followed_;
};

}  // namespace penstock::server
