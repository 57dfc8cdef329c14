// Hears what the engine does and passes it on: log lines to the log, events and progress to the
// reporter. Called from the training thread only; never blocks on the daemon.
#pragma once

#include <atomic>
#include <string>

#include "absl/time/time.h"
#include "engine/engine.h"
#include "penstock/v1/job.pb.h"
#include "server/worker/reporter.h"
#include "server/worker/step_watchdog.h"

namespace penstock::server {

class JobObserver : public TrainObserver {
 public:
  // `stop_requested` is set by the signal handler. All must outlive the observer.
  // `trace_path` is where timelines go that the daemon asks for.
  JobObserver(std::string job, int32_t attempt, std::string trace_path, Reporter* reporter,
              const std::atomic<bool>* stop_requested);
  // Hears of every call from now on; it must live as long as calls come.
  void SetWatchdog(StepWatchdog* watchdog) { watchdog_ = watchdog; }

  void OnLog(const std::string& line) override;
  void OnPhase(Phase phase, double fraction) override;
  void OnTotalSteps(int64_t total_steps) override;
  void OnStep(const StepRecord& record) override;
  void OnPlanMissed(const PlanMissRecord& record) override;
  void OnEvaluation(const EvaluationRecord& record) override;
  void OnResumed(const ResumeRecord& record) override;
  void OnCheckpointSaved(const CheckpointRecord& record) override;
  void OnCheckpointRemoved(int64_t step) override;
  void OnCheckpointFailed(int64_t step, const absl::Status& error) override;
  bool TakeSaveRequest() override { return reporter_->TakeSaveRequest(); }
  bool TakeTraceRequest() override;
  void OnStepTrace(const std::string& chrome_trace) override;
  Wish Ask() override;

 private:
  void Beat();
  void Publish();
  void RecordMetrics(v1::StepMetrics metrics);
  void LogStep(const StepRecord& record);

  const std::string job_;
  const int32_t attempt_;
  const std::string trace_path_;
  Reporter* const reporter_;
  const std::atomic<bool>* const stop_requested_;
  StepWatchdog* watchdog_ = nullptr;
  v1::JobProgress progress_;
  bool training_started_ = false;
  uint64_t trace_request_ = 0;  // that the next timeline answers
  // Exponential mean over steps: one slow step must not turn the estimate upside down.
  double mean_step_seconds_ = 0;
  absl::Time last_step_log_ = absl::InfinitePast();
};

}  // namespace penstock::server
