#include "server/worker/job_observer.h"

#include <unistd.h>

#include <cmath>
#include <utility>

#include "absl/time/clock.h"
#include "server/fault/fault_point.h"
#include "server/spec/convert.h"
#include "server/status_proto.h"
#include "server/store/log_file.h"
#include "server/store/state_directory.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
namespace {

constexpr absl::Duration kStepLogInterval = absl::Seconds(1);
constexpr double kNewestShare = 0.1;

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  google::protobuf::Timestamp proto;
  const int64_t seconds = absl::ToUnixSeconds(time);
  proto.set_seconds(seconds);
  proto.set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
  return proto;
}

const char* PointOf(Phase phase) {
  switch (phase) {
    case Phase::kData:
      return "worker.data";
    case Phase::kImport:
      return "worker.import";
    case Phase::kTrain:
      return "worker.train";
    case Phase::kEvaluate:
      return "worker.evaluate";
    case Phase::kCheckpoint:
      return "worker.checkpoint";
    case Phase::kExport:
      return "worker.export";
  }
  return "worker.phase";
}

}  // namespace

JobObserver::JobObserver(std::string job, int32_t attempt, std::string trace_path,
                         Reporter* reporter, const std::atomic<bool>* stop_requested)
    : job_(std::move(job)),
      attempt_(attempt),
      trace_path_(std::move(trace_path)),
      reporter_(reporter),
      stop_requested_(stop_requested) {}

void JobObserver::Beat() {
  if (watchdog_ != nullptr) watchdog_->Beat();
}

void JobObserver::OnLog(const std::string& line) {
  Beat();
  spdlog::info("{}", line);
}

void JobObserver::OnPhase(Phase phase, double fraction) {
  const v1::JobPhase phase_proto = ToProto(phase);
  if (phase_proto != progress_.phase()) {
    spdlog::debug("phase {}", v1::JobPhase_Name(phase_proto));
  }
  FaultPoint(PointOf(phase));
  progress_.set_phase(phase_proto);
  progress_.set_phase_fraction(fraction);
  Publish();
  if (phase == Phase::kTrain && !std::exchange(training_started_, true)) {
    internal::WorkerEvent event;
    event.mutable_training_started();
    reporter_->Record(std::move(event));
  }
}

void JobObserver::OnTotalSteps(int64_t total_steps) {
  progress_.set_total_steps(total_steps);
  Publish();
}

void JobObserver::OnStep(const StepRecord& record) {
  if (watchdog_ != nullptr) watchdog_->StepDone();
  progress_.set_step(record.step);
  progress_.set_real_tokens(progress_.real_tokens() + record.real_tokens);
  if (record.outcome == StepOutcome::kApplied) progress_.set_loss(record.loss);
  mean_step_seconds_ = mean_step_seconds_ == 0 ? record.step_seconds
                                               : (1 - kNewestShare) * mean_step_seconds_ +
                                                     kNewestShare * record.step_seconds;
  if (record.step_seconds > 0) {
    progress_.set_tokens_per_second(static_cast<double>(record.real_tokens) / record.step_seconds);
    progress_.set_remaining_seconds(static_cast<double>(progress_.total_steps() - record.step) *
                                    mean_step_seconds_);
  }
  Publish();
  RecordMetrics(ToProto(record));
  LogStep(record);
}

void JobObserver::LogStep(const StepRecord& record) {
  if (record.outcome != StepOutcome::kApplied) {
    spdlog::warn("step {} changed nothing: {}", record.step,
                 record.outcome == StepOutcome::kSkippedNonFinite
                     ? "the gradient norm is not finite"
                     : "none of its positions has a label");
    return;
  }
  const bool last = record.step == progress_.total_steps();
  if (absl::Now() - last_step_log_ < kStepLogInterval && !last && record.step != 1) return;
  last_step_log_ = absl::Now();
  spdlog::info("step {}/{} loss {:.4f} grad_norm {:.3f} lr {:.3g} {:.0f} tokens/s", record.step,
               progress_.total_steps(), record.loss, record.grad_norm, record.learning_rate,
               progress_.tokens_per_second());
}

void JobObserver::OnPlanMissed(const PlanMissRecord& record) {
  const double share = record.measured_step_seconds / record.predicted_step_seconds - 1;
  spdlog::warn(
      "steps take {:.4g} s, {:.0f}% {} than the {:.4g} s predicted from the machine profile {}; "
      "host memory {} of {} bytes planned",
      record.measured_step_seconds, 100 * std::abs(share), share > 0 ? "more" : "less",
      record.predicted_step_seconds, record.machine, record.host_peak_bytes,
      record.planned_host_peak_bytes);
  spdlog::warn(
      "the last step's timeline gives these rates, a file for penstock plan --machine:\n{}",
      ProfileJson(record.refitted));
  internal::WorkerEvent event;
  v1::PlanMissed& missed = *event.mutable_plan_missed();
  missed.set_step(record.step);
  missed.set_measured_step_seconds(record.measured_step_seconds);
  missed.set_predicted_step_seconds(record.predicted_step_seconds);
  missed.set_host_peak_bytes(record.host_peak_bytes);
  missed.set_planned_host_peak_bytes(record.planned_host_peak_bytes);
  missed.set_machine_profile(record.machine);
  reporter_->Record(std::move(event));
}

void JobObserver::OnEvaluation(const EvaluationRecord& record) {
  progress_.set_validation_loss(record.loss);
  Publish();
  RecordMetrics(ToProto(record));
  spdlog::info("evaluation after step {}: loss {:.4f} over {} tokens", record.step, record.loss,
               record.labelled_tokens);
}

void JobObserver::OnResumed(const ResumeRecord& record) {
  progress_.set_step(record.step);
  progress_.set_real_tokens(record.tokens);
  if (record.loss) progress_.set_loss(*record.loss);
  Publish();
  spdlog::info("goes on after step {} from {}", record.step, record.directory);
}

void JobObserver::OnCheckpointSaved(const CheckpointRecord& record) {
  FaultPoint("worker.checkpoint_saved");
  internal::WorkerEvent event;
  *event.mutable_checkpoint_saved() = ToProto(record, job_, attempt_);
  *event.mutable_checkpoint_saved()->mutable_create_time() = ToTimestamp(absl::Now());
  reporter_->Record(std::move(event));
  Beat();
  spdlog::info(
      "checkpoint of step {} saved: {} bytes in {}, written in {:.3g} s, of which training "
      "waited {:.3g} s",
      record.step, record.bytes, record.directory, record.write_seconds, record.waited_seconds);
}

void JobObserver::OnCheckpointRemoved(int64_t step) {
  internal::WorkerEvent event;
  event.set_checkpoint_removed(step);
  reporter_->Record(std::move(event));
}

void JobObserver::OnCheckpointFailed(int64_t step, const absl::Status& error) {
  internal::WorkerEvent event;
  event.mutable_checkpoint_failed()->set_step(step);
  *event.mutable_checkpoint_failed()->mutable_error() = ToStatusProto(error);
  event.mutable_checkpoint_failed()->mutable_error()->set_message(
      ValidUtf8(std::string(error.message())));
  reporter_->Record(std::move(event));
  Beat();
  spdlog::error("checkpoint of step {} not saved: {}", step, std::string(error.message()));
}

bool JobObserver::TakeTraceRequest() {
  const uint64_t request = reporter_->TakeTraceRequest();
  if (request != 0) trace_request_ = request;
  return request != 0;
}

void JobObserver::OnStepTrace(const std::string& chrome_trace) {
  if (const absl::Status written = WriteFileDurably(trace_path_, chrome_trace); !written.ok()) {
    // The daemon is answered all the same: it finds no file, or could wait for ever.
    spdlog::error("the timeline of the step is not written: {}", std::string(written.message()));
    unlink(trace_path_.c_str());
  }
  internal::WorkerEvent event;
  event.set_trace_written(trace_request_);
  reporter_->Record(std::move(event));
  Beat();
}

Wish JobObserver::Ask() {
  return stop_requested_->load(std::memory_order_relaxed) ? Wish::kStop : reporter_->wish();
}

void JobObserver::RecordMetrics(v1::StepMetrics metrics) {
  metrics.set_attempt(attempt_);
  *metrics.mutable_time() = ToTimestamp(absl::Now());
  internal::WorkerEvent event;
  *event.mutable_metrics() = std::move(metrics);
  reporter_->Record(std::move(event));
}

void JobObserver::Publish() {
  Beat();
  *progress_.mutable_update_time() = ToTimestamp(absl::Now());
  reporter_->SetProgress(progress_);
}

}  // namespace penstock::server
