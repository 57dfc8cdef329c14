#include "server/http/job_meter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "penstock/internal/worker.pb.h"
#include "server/store/segment_file.h"

namespace penstock::server {

void JobMeter::Add(v1::StepMetrics point) {
  if (point.has_evaluation()) {
    evaluation = std::move(point);
    return;
  }
  ++steps[point.outcome()];
  step_seconds += point.step_seconds();
  checkpoint_wait_seconds += point.checkpoint_wait_seconds();
  real_tokens += point.real_tokens();
  padding_tokens += point.padding_tokens();
  for (const auto& [lane, seconds] : point.lane_busy_seconds()) lane_busy_seconds[lane] += seconds;
  if (point.device_reading().has_power_watts()) {
    energy_joules =
        energy_joules.value_or(0) + point.device_reading().power_watts() * point.step_seconds();
  }
  step = std::move(point);
}

absl::StatusOr<bool> MeterReader::Read(int64_t max_points) {
  // Opened anew each time: a descriptor for each job would be many.
  SegmentReader reader(path_);
  reader.Seek(index_, offset_);
  for (int64_t i = 0; i < max_points; ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string> record, reader.Next());
    if (!record) return false;
    index_ = reader.index();
    offset_ = reader.offset();
    internal::WorkerEvent event;
    if (!event.ParseFromString(*record) || !event.has_metrics()) {
      return Error(absl::StatusCode::kDataLoss, reason::kStoreCorrupt,
                   absl::StrCat(path_, ": a record is no metric point"), {{"file", path_}});
    }
    meter_.Add(std::move(*event.mutable_metrics()));
  }
  return true;
}

}  // namespace penstock::server
