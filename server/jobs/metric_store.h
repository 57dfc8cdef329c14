// The metric points of a job: jobs/{id}/metrics.seg, one internal.WorkerEvent a record, so that a
// restarted daemon knows which of an attempt's events it has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "server/store/segment_file.h"

namespace penstock::server {

// Bytes of points in one ListJobMetrics reply; clients take 4 MiB by default.
inline constexpr int64_t kMaxMetricReplyBytes = 3 << 20;

// The highest event number of `attempt` in the file; 0 if there is none.
absl::StatusOr<uint64_t> LastMetricNumber(const std::string& path, int32_t attempt);

struct MetricRange {
  int64_t first_step = 0;
  int64_t last_step = 0;  // 0: open
  int64_t max_points = 1000;
};
// By step; of several attempts at a step only the newest. Thinned to the last point of each of
// max_points groups, with `skipped` counted; evaluations stay while they fit. Reads the file
// twice; keeps a few words a point.
absl::StatusOr<std::vector<v1::StepMetrics>> ReadMetricRange(const std::string& path,
                                                             const MetricRange& range);

}  // namespace penstock::server
