// Calibrate() of engine.h with sizes of one's own: tests take small ones.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/model/model_spec.h"
#include "engine/plan/policy.h"

namespace penstock {

// One model's steps.
struct CalibrationRun {
  ModelSpec spec;
  int64_t tokens = 4096;                      // of a micro-batch; a multiple of all lengths
  int32_t micro_batches = 2;                  // of a step
  std::vector<int64_t> document_tokens = {};  // what attention rates are told apart by
  // Of each length, that are not measured: at least one step, which pays for files, searches for
  // kernels and clocks. A GPU is to come to its limit of power, where it is in a job.
  double warm_seconds = 0;
  int32_t steps = 2;  // measured of each length
  // Under the next forward pass AdamW runs beside copies, at the end of the step alone.
  UpdateTime update_time = UpdateTime::kEndOfStep;
};

struct CalibrationSizes {
  std::vector<CalibrationRun> runs;
  int64_t storage_bytes = int64_t{256} << 20;
  double enough_seconds = 40;  // after so many no further step begins
};

CalibrationSizes DefaultCalibrationSizes(ComputeBackend backend);

absl::StatusOr<MeasuredProfile> CalibrateWith(const CalibrateConfig& config,
                                              const CalibrationSizes& sizes);

struct StorageRates {
  double read_bytes = 0, write_bytes = 0;  // a second
};
// One stream of large blocks to a file in the directory, which is gone afterwards; past the page
// cache where the file system can. IO_ERROR naming the directory.
absl::StatusOr<StorageRates> MeasureStorage(const std::string& directory, int64_t bytes);

}  // namespace penstock
