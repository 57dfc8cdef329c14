#include "server/metric_files/metric_files.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "google/protobuf/util/json_util.h"
#include "penstock/internal/worker.pb.h"
#include "server/metric_files/tensorboard_events.h"
#include "server/store/segment_file.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
namespace {

constexpr int64_t kPointsPerTurn = 4096;
constexpr std::chrono::seconds kPauseAfterFailure{60};
constexpr int kHeadRecords = 2;

// How many lines are whole, and the bytes they take. No file: none.
WholeRecords CountLines(const std::string& path) {
  WholeRecords whole;
  std::ifstream file(path, std::ios::binary);
  char bytes[65536];
  int64_t read = 0;
  while (file.read(bytes, sizeof bytes), file.gcount() > 0) {
    for (std::streamsize i = 0; i < file.gcount(); ++i) {
      if (bytes[i] != '\n') continue;
      ++whole.count;
      whole.bytes = read + i + 1;
    }
    read += file.gcount();
  }
  return whole;
}

}  // namespace

absl::StatusOr<JobMetricFiles> JobMetricFiles::Open(const std::string& job_directory) {
  const std::string path = job_directory + "/metrics.jsonl";
  const WholeRecords lines = CountLines(path);
  PENSTOCK_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path, lines.bytes));
  return JobMetricFiles(job_directory, std::move(file), lines.count);
}

absl::StatusOr<bool> JobMetricFiles::CopyNew(int64_t max_points) {
  SegmentReader reader(directory_ + "/metrics.seg");
  reader.Seek(index_, offset_);
  for (int64_t i = 0; i < max_points; ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string> record, reader.Next());
    if (!record) return false;
    internal::WorkerEvent event;
    if (!event.ParseFromString(*record) || !event.has_metrics()) {
      return Error(absl::StatusCode::kDataLoss, reason::kStoreCorrupt,
                   absl::StrCat(directory_, "/metrics.seg: a record is no metric point"));
    }
    PENSTOCK_RETURN_IF_ERROR(Copy(event.metrics(), index_));
    index_ = reader.index();
    offset_ = reader.offset();
  }
  return true;
}

absl::Status JobMetricFiles::Copy(const v1::StepMetrics& point, int64_t index) {
  if (point.attempt() != attempt_) PENSTOCK_RETURN_IF_ERROR(BeginAttempt(point));
  if (events_index_ >= events_there_) PENSTOCK_RETURN_IF_ERROR(events_->Append(EventOf(point)));
  ++events_index_;
  if (index < lines_there_) return absl::OkStatus();
  std::string line;
  if (!google::protobuf::util::MessageToJsonString(point, &line).ok()) line = "{}";
  return lines_.Append(line + "\n");
}

absl::Status JobMetricFiles::BeginAttempt(const v1::StepMetrics& point) {
  const std::string folder = directory_ + "/tensorboard";
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return Error(absl::StatusCode::kUnavailable, reason::kIoError,
                 absl::StrCat(folder, ": cannot make it: ", std::strerror(errno)));
  }
  // TensorBoard reads the files of a directory in the order of their names.
  const std::string path = absl::StrFormat("%s/events.out.tfevents.%010d.penstock.%04d", folder,
                                           point.time().seconds(), point.attempt());
  PENSTOCK_ASSIGN_OR_RETURN(WholeRecords whole, CountTfRecords(path));
  if (whole.count < kHeadRecords) whole = WholeRecords();
  PENSTOCK_ASSIGN_OR_RETURN(events_, AppendFile::Open(path, whole.bytes));
  if (whole.count == 0) {
    PENSTOCK_RETURN_IF_ERROR(events_->Append(EventFileHead(point)));
    whole.count = kHeadRecords;
  }
  events_there_ = whole.count - kHeadRecords;
  events_index_ = 0;
  attempt_ = point.attempt();
  return absl::OkStatus();
}

void MetricFiles::Follow(const std::set<std::string>& jobs) {
  for (const std::string& job : jobs) followed_.try_emplace(job);
  for (auto entry = followed_.begin(); entry != followed_.end();) {
    const bool done = CatchUp(entry->first, entry->second);
    entry = done && !jobs.contains(entry->first) ? followed_.erase(entry) : std::next(entry);
  }
}

bool MetricFiles::CatchUp(const std::string& job, Followed& followed) {
  if (Clock::now() < followed.not_before) return false;
  const auto copy = [&]() -> absl::StatusOr<bool> {
    if (!followed.files) {
      PENSTOCK_ASSIGN_OR_RETURN(followed.files, JobMetricFiles::Open(directory_.Job(job)));
    }
    return followed.files->CopyNew(kPointsPerTurn);
  };
  const absl::StatusOr<bool> more = copy();
  if (more.ok()) return !*more;
  struct stat info {};
  if (stat(directory_.Job(job).c_str(), &info) != 0) return true;  // deleted
  spdlog::warn("the metric files of {} are tried again in a minute: {}", job,
               std::string(more.status().message()));
  // Opened anew then, which cuts what is half there.
  followed.files.reset();
  followed.not_before = Clock::now() + kPauseAfterFailure;
  return false;
}

}  // namespace penstock::server
