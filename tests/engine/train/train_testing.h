// Whole jobs on tiny models: a config to start from, and an observer that remembers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/plan/policy.h"
#include "engine/train/model_input.h"
#include "engine/train/training_plan.h"
#include "tests/engine/train/weights_testing.h"

namespace penstock::testing {

class RecordingObserver : public TrainObserver {
 public:
  void OnLog(const std::string& line) override { log += line + "\n"; }
  void OnPhase(Phase phase, double /*fraction*/) override { phases.push_back(phase); }
  void OnTotalSteps(int64_t total) override { total_steps = total; }
  void OnStep(const StepRecord& record) override { steps.push_back(record); }
  void OnPlanMissed(const PlanMissRecord& record) override { misses.push_back(record); }
  void OnEvaluation(const EvaluationRecord& record) override { evaluations.push_back(record); }
  void OnResumed(const ResumeRecord& record) override { resumed.push_back(record); }
  void OnCheckpointSaved(const CheckpointRecord& record) override { saved.push_back(record.step); }
  void OnCheckpointRemoved(int64_t step) override { removed.push_back(step); }
  void OnCheckpointFailed(int64_t step, const absl::Status& error) override {
    failed.emplace_back(step, error);
  }
  bool TakeSaveRequest() override {
    return static_cast<int64_t>(steps.size()) == save_requested_at;
  }
  Wish Ask() override {
    return static_cast<int64_t>(steps.size()) >= stop_after ? Wish::kStop : Wish::kContinue;
  }

  std::string log;
  std::vector<Phase> phases;
  int64_t total_steps = 0;
  std::vector<StepRecord> steps;
  std::vector<EvaluationRecord> evaluations;
  std::vector<PlanMissRecord> misses;
  std::vector<ResumeRecord> resumed;
  std::vector<int64_t> saved, removed;
  std::vector<std::pair<int64_t, absl::Status>> failed;
  int64_t stop_after = INT64_MAX;  // steps
  int64_t save_requested_at = 0;   // step of this process
};

// One layer, hidden 16, vocabulary 320, tied: for byte text.
nlohmann::json ByteModelConfig();

// Two layers and a head of its own: rounds change no bit of it.
nlohmann::json UntiedModel();

// Policies of UntiedModel() that differ in what a settled store needs: updates that wait, weights,
// gradients and state on the device. All give the same bits.
std::vector<Policy> DeferringAndPlacing();

// Runs the job so, with what the executor needs for it.
void UsePolicy(const Policy& policy, const ModelInput& model, TrainingPlan& plan);

// A job on `data_path` (text, one document a blank-line paragraph) with its checkpoints and
// caches in `directory`; rows of 16 tokens, 4 rows a step in 2 micro-batches, 4 steps.
TrainConfig TinyTrainConfig(const std::string& directory, const std::string& data_path);

// Paragraphs of English-like words, `bytes` of them.
std::string SomeText(int64_t bytes);

}  // namespace penstock::testing
