// What a job's metric points add up to, over all its attempts: read from its metric file, which
// outlives the daemon, so that no counter falls when one is started again. A step that was trained
// twice, as an attempt died before its checkpoint, counts twice: it took the time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::server {

struct JobMeter {
  std::optional<v1::StepMetrics> step;        // newest
  std::optional<v1::StepMetrics> evaluation;  // newest
  std::map<v1::StepOutcome, int64_t> steps;
  std::map<std::string, double> lane_busy_seconds;
  double step_seconds = 0;
  double checkpoint_wait_seconds = 0;
  int64_t real_tokens = 0;
  int64_t padding_tokens = 0;
  // The power that the device drew when a step ended, over that step; unset without a reading.
  std::optional<double> energy_joules;

  void Add(v1::StepMetrics point);
};

// Reads on where it stopped. Used by one thread at a time.
class MeterReader {
 public:
  explicit MeterReader(std::string path) : path_(std::move(path)) {}
  // At most `max_points` points; true if there may be more.
  absl::StatusOr<bool> Read(int64_t max_points);
  const JobMeter& meter() const { return meter_; }

 private:
  const std::string path_;
  int64_t index_ = 0;
  int64_t offset_ = 0;
  JobMeter meter_;
};

}  // namespace penstock::server
