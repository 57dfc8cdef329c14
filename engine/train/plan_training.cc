// PlanTraining(): what MakeTrainingPlan() makes of a job, and what people want to know beside it.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/plan/chrome_trace.h"
#include "engine/plan/op_cost.h"
#include "engine/plan/simulate.h"
#include "engine/train/job_encoding.h"
#include "engine/train/policy_choice.h"
#include "engine/train/training_plan.h"

namespace penstock {
namespace {

// Of a program or trace in a reply: as text, some 200 bytes each.
constexpr int64_t kMostShownOps = 100'000;
// Of text, by a model's tokenizer: English has about four.
constexpr double kBytesPerToken = 4;

// What larger steps would gain: the optimizer and the gradients' way are paid once a step.
std::vector<StepPrediction::Other> LargerSteps(const TrainConfig& config, const ModelInput& model,
                                               int64_t data_bytes, const HostMemoryLimit& usable,
                                               double tokens_per_second, SearchEffort& effort) {
  constexpr double kWorthSaying = 1.03;
  std::vector<StepPrediction::Other> settings;
  for (int64_t factor : {2, 4}) {
    if (effort.Spent()) break;
    TrainConfig larger = config;
    larger.batch.tokens_per_step *= factor;
    const auto plan = TryTrainingPlan(larger, model, data_bytes, usable, effort);
    if (!plan.ok()) break;
    const double gain = plan->memory.prediction.tokens_per_second / tokens_per_second;
    if (gain < kWorthSaying) continue;
    settings.push_back({absl::StrCat("batch.tokens_per_step: ", larger.batch.tokens_per_step),
                        absl::StrFormat("%+.0f%% tokens/s", 100 * (gain - 1))});
  }
  return settings;
}

// Micro-batches that a plan is made for where the job has none: whole rows, a divisor of the step,
// up to as many tokens as keep a GEMM busy.
std::vector<int64_t> MicroBatches(const BatchConfig& batch) {
  constexpr int64_t kMostTokens = 32768;
  constexpr size_t kTried = 8;
  const int64_t rows = batch.tokens_per_step / batch.sequence_length;
  std::vector<int64_t> tokens;
  for (int64_t share = 1; share <= rows && share * batch.sequence_length <= kMostTokens; ++share) {
    if (rows % share == 0) tokens.push_back(share * batch.sequence_length);
  }
  if (tokens.empty()) return {batch.sequence_length};
  std::reverse(tokens.begin(), tokens.end());
  if (tokens.size() > kTried) tokens.resize(kTried);
  return tokens;
}

// The fastest, by more than a hair; the one with the largest micro-batches of those alike. Of as
// many as may be tried; none if none of them fits.
std::optional<TrainingPlan> FastestPlan(const TrainConfig& config, const ModelInput& model,
                                        int64_t data_bytes, const HostMemoryLimit& usable,
                                        SearchEffort& effort) {
  constexpr double kHair = 0.995;
  std::optional<TrainingPlan> fastest;
  for (int64_t tokens : MicroBatches(config.batch)) {
    if (effort.Spent()) break;
    TrainConfig tried = config;
    tried.batch.micro_batch_tokens = tokens;
    auto plan = TryTrainingPlan(tried, model, data_bytes, usable, effort);
    if (!plan.ok()) continue;
    if (fastest.has_value() &&
        plan->memory.prediction.step_seconds > kHair * fastest->memory.prediction.step_seconds) {
      continue;
    }
    fastest = *std::move(plan);
  }
  return fastest;
}

// Steps of the whole schedule. Those of epochs are not known before the data is tokenized.
int64_t StepsOf(const TrainConfig& config, int64_t data_bytes, bool& estimated) {
  estimated = config.schedule.max_steps == 0;
  if (!estimated) return config.schedule.max_steps;
  const double bytes_per_token =
      config.data.tokenizer == TokenizerChoice::kBytes ? 1 : kBytesPerToken;
  const double step_bytes = bytes_per_token * static_cast<double>(config.batch.tokens_per_step);
  const double steps = std::ceil(static_cast<double>(data_bytes) / step_bytes);
  return config.schedule.epochs * std::max<int64_t>(1, static_cast<int64_t>(steps));
}

struct SimulatedStep {
  StepProgram program;
  Simulation simulation;
};

absl::StatusOr<SimulatedStep> SimulateStep(const TrainConfig& config, const ModelInput& model,
                                           const TrainingPlan& plan) {
  SimulatedStep step;
  PENSTOCK_ASSIGN_OR_RETURN(step.program, TrainProgram(model, plan, plan.micro_batches));
  const MachineProfile rates = ProfileOf(config, plan.threads).rates;
  step.simulation = Simulate(
      step.program, OpSeconds(step.program, model.spec, model.layout, CostOf(config, plan), rates),
      ContentionOf(rates));
  return step;
}

JobEstimate EstimateJob(const TrainConfig& config, const TrainingPlan& plan, int64_t data_bytes,
                        const Simulation& step) {
  const PowerDraw power = ProfileOf(config, plan.threads).power;
  const double busy = step.busy_seconds[static_cast<int>(Lane::kCompute)];
  JobEstimate estimate;
  estimate.steps = StepsOf(config, data_bytes, estimate.steps_estimated);
  const auto steps = static_cast<double>(estimate.steps);
  const double seconds = plan.memory.prediction.step_seconds;
  estimate.seconds = steps * seconds;
  estimate.joules = steps * (seconds * power.host + busy * power.device_busy +
                             std::max(0.0, seconds - busy) * power.device_idle);
  return estimate;
}

absl::Status Show(const SimulatedStep& step, const PlanOptions& options, const std::string& machine,
                  MemoryPlanSummary& summary) {
  const auto ops = static_cast<int64_t>(step.program.ops.size());
  if ((options.program || options.trace) && ops > kMostShownOps) {
    return Error(
        absl::StatusCode::kResourceExhausted, reason::kSpecInvalid,
        absl::StrCat("the program of a step has ", ops, " operations; at most ", kMostShownOps,
                     " are shown; raise batch.micro_batch_tokens or lower "
                     "batch.tokens_per_step, or plan without the program"),
        {{"field", "batch.micro_batch_tokens"}});
  }
  if (options.program) summary.step_program = ToText(step.program);
  if (options.trace) {
    summary.step_trace =
        ChromeTrace(step.program, step.simulation.timeline, absl::StrCat("predicted: ", machine));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MemoryPlanSummary> PlanTraining(const TrainConfig& given,
                                               const PlanOptions& options) {
  TrainConfig config = given;
  PENSTOCK_ASSIGN_OR_RETURN(const ModelInput model, OpenModelInput(config));
  PENSTOCK_RETURN_IF_ERROR(JobEncoding::Create(config, model).status());
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t data_bytes, DataFileBytes(config));
  const HostMemoryLimit usable = UsableHostMemory(config);
  SearchEffort effort{.most_ops = options.most_tried_ops};
  std::optional<TrainingPlan> found;
  if (config.batch.micro_batch_tokens == 0) {
    found = FastestPlan(config, model, data_bytes, usable, effort);
    // If none fits, a plan for one row says what is missing.
    config.batch.micro_batch_tokens =
        found.has_value() ? found->memory.micro_batch_tokens : config.batch.sequence_length;
  }
  if (!found.has_value()) {
    PENSTOCK_ASSIGN_OR_RETURN(found, MakeTrainingPlan(config, model, data_bytes, usable));
  }
  TrainingPlan& plan = *found;
  PENSTOCK_ASSIGN_OR_RETURN(const SimulatedStep step, SimulateStep(config, model, plan));
  StepPrediction& prediction = plan.memory.prediction;
  PENSTOCK_RETURN_IF_ERROR(Show(step, options, prediction.machine, plan.memory));
  if (options.larger_steps) {
    prediction.settings =
        LargerSteps(config, model, data_bytes, usable, prediction.tokens_per_second, effort);
  }
  plan.memory.estimate = EstimateJob(config, plan, data_bytes, step.simulation);
  return std::move(plan.memory);
}

}  // namespace penstock
