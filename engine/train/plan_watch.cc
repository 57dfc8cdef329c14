#include "engine/train/plan_watch.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

namespace penstock {

std::optional<PlanMissRecord> PlanWatch::Add(const StepRecord& record) {
  if (warm_up_left_ > 0) {
    --warm_up_left_;
    return std::nullopt;
  }
  seconds_ += record.step_seconds - record.checkpoint_wait_seconds;
  if (++compared_ < kCompared) return std::nullopt;
  const double mean = std::exchange(seconds_, 0) / static_cast<double>(std::exchange(compared_, 0));
  const bool drifts = std::abs(mean / record.predicted_step_seconds - 1) > kDrift;
  const bool missed = drifts || record.host_peak_bytes > record.planned_host_peak_bytes;
  const bool before = std::exchange(missed_, missed);
  if (!missed || before) return std::nullopt;
  return PlanMissRecord{.step = record.step,
                        .measured_step_seconds = mean,
                        .predicted_step_seconds = record.predicted_step_seconds,
                        .host_peak_bytes = record.host_peak_bytes,
                        .planned_host_peak_bytes = record.planned_host_peak_bytes,
                        .machine = {},
                        .refitted = {}};
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/status");
  int64_t kib = 0;
  for (std::string key; file >> key;) {
    if (key == "RssAnon:" || key == "RssShmem:") {
      int64_t value = 0;
      if (file >> value) kib += value;
    }
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kib * 1024;
}

}  // namespace penstock
