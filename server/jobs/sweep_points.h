// A sweep's grid written out: pure functions over its spec.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::server {

inline constexpr int64_t kMaxSweepJobs = 256;

// How many jobs the sweep has. InvalidArgument / SPEC_INVALID if it has no axes, none or too many
// points, axes that overlap, or jobs that take too much room together.
absl::StatusOr<int64_t> CountSweepJobs(const v1::SweepSpec& sweep);

struct SweepJobSpec {
  v1::JobSpec spec;
  v1::SweepPoint point;  // without the sweep's name
};
// The jobs, the last axis changing fastest; output.directory gets the job's number unless an axis
// has it. InvalidArgument / SPEC_INVALID for a value that its field does not take (with metadata
// "field", and "file": "axes[0].values[2]"), and for two jobs that would be the same.
absl::StatusOr<std::vector<SweepJobSpec>> ExpandSweep(const v1::SweepSpec& sweep);

// "-001"
std::string SweepSuffix(int32_t number);
// "optimizer.learning_rate=1e-5, seed=2", cut where it is very long.
std::string PointText(const v1::SweepPoint& point);

}  // namespace penstock::server
