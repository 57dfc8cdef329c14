#include "server/jobs/metric_store.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "penstock/internal/worker.pb.h"

namespace penstock::server {
namespace {

// Where one point lies in the file, and what choosing among points needs.
struct Point {
  int64_t index;
  int64_t offset;
  int64_t bytes;
};
// Training point and evaluation of one step are two points.
struct PointKey {
  int64_t step;
  bool evaluation;
  friend auto operator<=>(const PointKey&, const PointKey&) = default;
};
using PointTable = std::map<PointKey, Point>;

absl::StatusOr<internal::WorkerEvent> ParseRecord(const std::string& record,
                                                  const std::string& path) {
  internal::WorkerEvent event;
  if (!event.ParseFromString(record) || !event.has_metrics()) {
    return Error(absl::StatusCode::kDataLoss, reason::kStoreCorrupt,
                 absl::StrCat(path, ": a record is no metric point"), {{"file", path}});
  }
  return event;
}

absl::StatusOr<PointTable> FindPoints(const std::string& path, const MetricRange& range) {
  PointTable table;
  SegmentReader reader(path);
  while (true) {
    const int64_t index = reader.index();
    const int64_t offset = reader.offset();
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string> record, reader.Next());
    if (!record) return table;
    PENSTOCK_ASSIGN_OR_RETURN(const internal::WorkerEvent event, ParseRecord(*record, path));
    const v1::StepMetrics& metrics = event.metrics();
    if (metrics.step() < range.first_step) continue;
    if (range.last_step > 0 && metrics.step() > range.last_step) continue;
    const Point point{.index = index,
                      .offset = offset,
                      .bytes = static_cast<int64_t>(metrics.ByteSizeLong()) + 16};
    const PointKey key{.step = metrics.step(), .evaluation = metrics.has_evaluation()};
    // The file is in order of time, so the later one is of the newer attempt.
    table.insert_or_assign(key, point);
  }
}

struct Chosen {
  Point point;
  int64_t skipped;
};

// The last of each of `groups` groups of training points; evaluations all, or grouped as well.
enum class Evaluations : uint8_t { kAll, kGrouped };
std::vector<Chosen> Choose(const PointTable& table, int64_t groups, Evaluations evaluations) {
  std::vector<Chosen> chosen;
  const auto grouped = [&](const PointKey& key) {
    return evaluations == Evaluations::kGrouped || !key.evaluation;
  };
  const int64_t candidates = std::count_if(table.begin(), table.end(),
                                           [&](const auto& entry) { return grouped(entry.first); });
  const int64_t group_size = std::max<int64_t>(1, CeilDiv(candidates, groups));
  int64_t seen = 0;
  int64_t skipped = 0;
  for (const auto& [key, point] : table) {
    if (!grouped(key)) {
      chosen.push_back({point, 0});
    } else if (++seen % group_size == 0 || seen == candidates) {
      chosen.push_back({point, std::exchange(skipped, 0)});
    } else {
      ++skipped;
    }
  }
  return chosen;
}

int64_t TotalBytes(const std::vector<Chosen>& chosen) {
  int64_t bytes = 0;
  for (const Chosen& one : chosen) bytes += one.point.bytes;
  return bytes;
}

std::vector<Chosen> ChooseWithinReply(const PointTable& table, int64_t max_points) {
  for (const Evaluations evaluations : {Evaluations::kAll, Evaluations::kGrouped}) {
    for (int64_t groups = max_points; groups >= 1; groups /= 2) {
      std::vector<Chosen> chosen = Choose(table, groups, evaluations);
      if (TotalBytes(chosen) <= kMaxMetricReplyBytes) return chosen;
    }
  }
  return {};  // Not reached: one record is far smaller than a reply.
}

}  // namespace

absl::StatusOr<uint64_t> LastMetricNumber(const std::string& path, int32_t attempt) {
  SegmentReader reader(path);
  uint64_t last = 0;
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string> record, reader.Next());
    if (!record) return last;
    PENSTOCK_ASSIGN_OR_RETURN(const internal::WorkerEvent event, ParseRecord(*record, path));
    if (event.metrics().attempt() == attempt) last = std::max(last, uint64_t{event.number()});
  }
}

absl::StatusOr<std::vector<v1::StepMetrics>> ReadMetricRange(const std::string& path,
                                                             const MetricRange& range) {
  PENSTOCK_ASSIGN_OR_RETURN(const PointTable table, FindPoints(path, range));
  std::vector<v1::StepMetrics> points;
  SegmentReader reader(path);
  for (const Chosen& one : ChooseWithinReply(table, range.max_points)) {
    reader.Seek(one.point.index, one.point.offset);
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string> record, reader.Next());
    if (!record) break;  // The job was deleted and its file is gone.
    PENSTOCK_ASSIGN_OR_RETURN(internal::WorkerEvent event, ParseRecord(*record, path));
    points.push_back(std::move(*event.mutable_metrics()));
    points.back().set_skipped(one.skipped);
  }
  return points;
}

}  // namespace penstock::server
