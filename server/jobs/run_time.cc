#include "server/jobs/run_time.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"

namespace penstock::server {
namespace {

using google::protobuf::util::TimeUtil;

// For the start of a worker, and for saving at the end.
constexpr int64_t kAroundSeconds = 300;
constexpr double kOnTop = 1.5;
// Longer than anything runs; keeps sums of times far from overflow.
constexpr double kMostSeconds = 1e9;

// The smaller of those that are known.
void Lower(std::optional<int64_t>& seconds, double other) {
  const auto known = static_cast<int64_t>(std::ceil(std::clamp(other, 0.0, kMostSeconds)));
  if (!seconds || known < *seconds) seconds = known;
}

}  // namespace

absl::Time ToTime(const google::protobuf::Timestamp& time) {
  return absl::FromUnixMillis(TimeUtil::TimestampToMilliseconds(time));
}

std::optional<int64_t> LongestRunSeconds(const v1::Job& job) {
  std::optional<int64_t> seconds;
  if (const int64_t limit = job.train().limits().run_seconds(); limit > 0) {
    Lower(seconds, static_cast<double>(limit) - job.run_seconds() + kAroundSeconds);
  }
  if (const double estimate = job.plan().estimate().seconds(); estimate > 0) {
    Lower(seconds, estimate * kOnTop + kAroundSeconds);
  }
  return seconds;
}

std::optional<int64_t> SecondsLeft(const v1::Job& job, absl::Time now) {
  const double attempt = absl::ToDoubleSeconds(now - ToTime(job.attempt_start_time()));
  std::optional<int64_t> seconds;
  if (const int64_t limit = job.train().limits().run_seconds(); limit > 0) {
    Lower(seconds, static_cast<double>(limit) - job.run_seconds() - attempt);
  }
  const v1::JobProgress& progress = job.progress();
  double predicted = 0;
  if (progress.remaining_seconds() > 0) {
    predicted =
        progress.remaining_seconds() - absl::ToDoubleSeconds(now - ToTime(progress.update_time()));
  } else if (job.plan().estimate().seconds() > 0) {
    predicted = job.plan().estimate().seconds() - attempt;
  }
  if (predicted > 0) Lower(seconds, predicted);
  return seconds;
}

std::string DurationText(int64_t seconds) {
  if (seconds < 120) return absl::StrCat("about ", seconds, " s");
  const int64_t minutes = (seconds + 30) / 60;
  if (minutes < 60) return absl::StrCat("about ", minutes, " min");
  if (minutes < 48 * 60) return absl::StrCat("about ", minutes / 60, " h ", minutes % 60, " min");
  return absl::StrCat("about ", minutes / (24 * 60), " days");
}

}  // namespace penstock::server
