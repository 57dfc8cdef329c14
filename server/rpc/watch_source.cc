#include "server/rpc/watch_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "google/protobuf/util/time_util.h"
#include "penstock/internal/worker.pb.h"
#include "server/jobs/request_checks.h"
#include "server/store/job_state.h"
#include "server/store/log_file.h"

namespace penstock::server {
namespace {

constexpr char kAllJobs[] = "jobs/-";
constexpr int64_t kLogBatchBytes = 64 << 10;
// Points passed over before other streams get their turn.
constexpr int64_t kMetricsPerTurn = 4096;

absl::Status Expired(const std::string& what) {
  return Error(absl::StatusCode::kOutOfRange, reason::kCursorExpired,
               absl::StrCat("the cursor lies beyond the end: ", what,
                            ". Watch from the beginning, without a cursor"));
}

v1::WatchKind KindOf(const v1::WatchJobsResponse& event) {
  if (event.has_state_changed() || event.has_plan_missed()) return v1::WATCH_KIND_STATE;
  return event.has_device_changed() ? v1::WATCH_KIND_DEVICE : v1::WATCH_KIND_CHECKPOINT;
}

}  // namespace

absl::Status CheckWatchRequest(const v1::WatchJobsRequest& request) {
  if (request.name() != kAllJobs) PENSTOCK_RETURN_IF_ERROR(CheckJobName(request.name(), "name"));
  if (request.min_metric_interval_ms() < 0) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
                 absl::StrCat("min_metric_interval_ms is ", request.min_metric_interval_ms(),
                              "; expected 0 (all points) or more"),
                 {{"field", "min_metric_interval_ms"}});
  }
  if (request.after().log_attempt() < 0) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
                 "after.log_attempt is negative; use the cursor of a message as it came",
                 {{"field", "after.log_attempt"}});
  }
  return absl::OkStatus();
}

WatchSource::WatchSource(const v1::WatchJobsRequest& request, const StateDirectory& directory)
    : request_(request),
      directory_(directory),
      job_(request.name() == kAllJobs ? "" : request.name()),
      cursor_(request.after()),
      metrics_(directory.Metrics(job_)) {
  if (!job_.empty() && cursor_.log_attempt() == 0) cursor_.set_log_attempt(1);
}

bool WatchSource::Wants(v1::WatchKind kind) const {
  return request_.kinds().empty() || std::find(request_.kinds().begin(), request_.kinds().end(),
                                               kind) != request_.kinds().end();
}

bool WatchSource::JobHasEnded() const {
  return batch_ != nullptr && batch_->job && IsFinal(batch_->job->state());
}

absl::Status WatchSource::AddBatch(std::shared_ptr<const WatchBatch> batch) {
  // While there are events there may be more behind them.
  needs_batch_ = !batch->events.empty();
  const bool first = batch_ == nullptr;
  batch_ = std::move(batch);
  next_event_ = 0;
  if (job_.empty() || !first) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(CheckLogPosition());
  return FindMetricPosition();
}

absl::Status WatchSource::CheckLogPosition() const {
  const int32_t attempt = cursor_.log_attempt();
  const bool at_start = attempt == 1 && cursor_.log_offset() == 0;
  if (at_start) return absl::OkStatus();
  if (attempt > batch_->job->attempt()) {
    return Expired(absl::StrCat("log_attempt ", attempt, ", ", job_, " has had ",
                                batch_->job->attempt(), " attempts"));
  }
  const int64_t size = FileSize(directory_.Log(job_, attempt));
  if (cursor_.log_offset() > static_cast<uint64_t>(size)) {
    return Expired(
        absl::StrCat("log_offset ", cursor_.log_offset(), ", the log has ", size, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status WatchSource::FindMetricPosition() {
  const auto wanted =
      static_cast<int64_t>(std::min<uint64_t>(cursor_.metric(), uint64_t{INT64_MAX}));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t skipped, metrics_.Skip(wanted));
  if (skipped < wanted) {
    return Expired(absl::StrCat("metric ", wanted, ", there are ", skipped, " points"));
  }
  return absl::OkStatus();
}

bool WatchSource::NextEventEndsTheJob() const {
  const v1::WatchJobsResponse& next = NextEvent().message;
  return !job_.empty() && next.has_state_changed() && IsFinal(next.state_changed().job().state());
}

void WatchSource::SkipUnwantedEvents() {
  for (; HasEvent(); ++next_event_) {
    if (Wants(KindOf(NextEvent().message))) return;
    cursor_.set_event(NextEvent().cursor);
  }
}

void WatchSource::TakeEvent(v1::WatchJobsResponse& message) {
  cursor_.set_event(NextEvent().cursor);
  message = NextEvent().message;
  ++next_event_;
}

absl::StatusOr<WatchSource::Step> WatchSource::Next(v1::WatchJobsResponse& message) {
  if (ended_) return Step::kEnd;
  message.Clear();
  SkipUnwantedEvents();
  if (!HasEvent() && needs_batch_) return Step::kNeedsBatch;
  Step step = Step::kNothing;
  if (HasEvent() && !NextEventEndsTheJob()) {
    TakeEvent(message);
    step = Step::kMessage;
  } else if (!job_.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(step, NextData(message));
  }
  if (step == Step::kNothing && HasEvent()) {
    TakeEvent(message);
    step = Step::kMessage;
  }
  if (step == Step::kNothing && !caught_up_) {
    caught_up_ = true;
    message.mutable_caught_up();
    step = Step::kMessage;
  }
  if (step == Step::kNothing && (JobHasEnded() || !request_.follow())) {
    ended_ = true;
    message.mutable_end();
    if (batch_->job) *message.mutable_end()->mutable_job() = *batch_->job;
    step = Step::kMessage;
  }
  if (step == Step::kMessage) *message.mutable_cursor() = cursor_;
  return step;
}

absl::StatusOr<WatchSource::Step> WatchSource::NextData(v1::WatchJobsResponse& message) {
  if (Wants(v1::WATCH_KIND_METRIC)) {
    PENSTOCK_ASSIGN_OR_RETURN(const Step step, NextMetric(message));
    if (step != Step::kNothing) return step;
  }
  if (Wants(v1::WATCH_KIND_LOG)) return NextLog(message);
  return Step::kNothing;
}

void WatchSource::Emit(v1::StepMetrics metrics, int64_t next_index,
                       v1::WatchJobsResponse& message) {
  metrics.set_skipped(std::exchange(skipped_, 0));
  held_.reset();
  // Points held back since the last one sent come again after a reconnect, so the cursor moves
  // only here.
  cursor_.set_metric(static_cast<uint64_t>(next_index));
  *message.mutable_metrics() = std::move(metrics);
}

absl::StatusOr<WatchSource::Step> WatchSource::NextMetric(v1::WatchJobsResponse& message) {
  const int64_t interval = request_.min_metric_interval_ms();
  for (int64_t i = 0; i < kMetricsPerTurn; ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string> record, metrics_.Next());
    if (!record) {
      if (!held_ || !(JobHasEnded() || !request_.follow())) return Step::kNothing;
      --skipped_;  // The held one itself was counted.
      Emit(*std::move(held_), held_index_, message);
      return Step::kMessage;
    }
    internal::WorkerEvent event;
    if (!event.ParseFromString(*record) || !event.has_metrics()) {
      return Error(absl::StatusCode::kDataLoss, reason::kStoreCorrupt,
                   absl::StrCat(directory_.Metrics(job_), ": a record is no metric point"));
    }
    v1::StepMetrics& metrics = *event.mutable_metrics();
    const int64_t time_ms =
        google::protobuf::util::TimeUtil::TimestampToMilliseconds(metrics.time());
    const bool too_soon = interval > 0 && last_metric_ms_ != INT64_MIN &&
                          time_ms >= last_metric_ms_ && time_ms - last_metric_ms_ < interval;
    if (too_soon && !metrics.has_evaluation()) {
      held_ = std::move(metrics);
      held_index_ = metrics_.index();
      ++skipped_;
      continue;
    }
    last_metric_ms_ = time_ms;
    Emit(std::move(metrics), metrics_.index(), message);
    return Step::kMessage;
  }
  return Step::kAgain;
}

absl::StatusOr<WatchSource::Step> WatchSource::NextLog(v1::WatchJobsResponse& message) {
  while (cursor_.log_attempt() <= batch_->job->attempt()) {
    const int32_t attempt = cursor_.log_attempt();
    const LogTail tail =
        attempt < batch_->job->attempt() || JobHasEnded() ? LogTail::kFinal : LogTail::kMayGrow;
    PENSTOCK_ASSIGN_OR_RETURN(LogBatch batch, ReadLog(directory_.Log(job_, attempt),
                                                      cursor_.log_offset(), kLogBatchBytes, tail));
    if (!batch.lines.empty()) {
      v1::LogLines& lines = *message.mutable_log_lines();
      lines.set_attempt(attempt);
      lines.set_offset(cursor_.log_offset());
      for (std::string& line : batch.lines) lines.add_lines(std::move(line));
      cursor_.set_log_offset(batch.next_offset);
      return Step::kMessage;
    }
    if (attempt == batch_->job->attempt()) break;
    cursor_.set_log_attempt(attempt + 1);
    cursor_.set_log_offset(0);
  }
  return Step::kNothing;
}

void WatchSource::MakeHeartbeat(v1::WatchJobsResponse& message) const {
  message.Clear();
  message.mutable_heartbeat();
  *message.mutable_cursor() = cursor_;
}

}  // namespace penstock::server
