// One function a section of the spec, in the order of job_spec.proto: fill in defaults, then
// check. ToTrainConfig() at the end only translates.

#include "server/spec/job_spec.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "server/spec/convert.h"
#include "server/spec/data_spec.h"
#include "server/spec/device_choice.h"
#include "server/spec/spec_fields.h"

namespace penstock::server {
namespace {

constexpr int64_t kMaxConfigJsonBytes = int64_t{1} << 20;
constexpr int64_t kMaxSequenceLength = 1 << 20;
constexpr int64_t kMaxTokensPerStep = int64_t{1} << 30;
constexpr int64_t kMaxSteps = 1'000'000'000;
constexpr int64_t kMaxSkipSteps = 10'000;
constexpr int64_t kMaxHeldOutDocuments = 1'000'000'000'000;
constexpr int64_t kMaxEpochs = 1'000'000;
constexpr int64_t kMaxKeptCheckpoints = 10'000;
constexpr int64_t kMaxCheckpointSeconds = 365 * 24 * 3600;
constexpr int64_t kMaxThreads = 4096;
constexpr int64_t kMaxAttempts = 100;
constexpr int64_t kMaxRunSeconds = int64_t{10} * 366 * 86'400;
constexpr int kMaxParents = 32;
constexpr int64_t kMaxPreemptions = 1000;
// 1 - x is 1 in fp32 for x below this.
constexpr double kHalfUlpBelowOne = 1.0 / (1 << 25);

using Roots = std::vector<std::string>;

absl::Status ResolveModel(const Roots& roots, v1::ModelSource& model) {
  switch (model.source_case()) {
    case v1::ModelSource::SOURCE_NOT_SET:
      return FieldError("model", "no source",
                        "model.directory (a Hugging Face directory) or model.random (a config)");
    case v1::ModelSource::kDirectory: {
      PENSTOCK_ASSIGN_OR_RETURN(*model.mutable_directory(),
                                CheckPath("model.directory", model.directory(), roots));
      return absl::OkStatus();
    }
    case v1::ModelSource::kRandom:
      break;
  }
  v1::RandomModel& random = *model.mutable_random();
  if (random.config_case() == v1::RandomModel::CONFIG_NOT_SET) {
    return FieldError("model.random", "no config", "config_path or config_json");
  }
  if (random.has_config_path()) {
    // At submit: the job runs what the file said then, whatever happens to it in the queue.
    PENSTOCK_ASSIGN_OR_RETURN(
        std::string json,
        ReadFileAt("model.random.config_path", random.config_path(), roots, kMaxConfigJsonBytes));
    random.set_config_json(std::move(json));
  }
  if (random.config_json().empty()) {
    return FieldError("model.random.config_json", "nothing", "the text of a config.json");
  }
  const auto bytes = static_cast<int64_t>(random.config_json().size());
  if (bytes > kMaxConfigJsonBytes) {
    return FieldError("model.random.config_json", absl::StrCat(bytes, " bytes"),
                      absl::StrCat("at most ", kMaxConfigJsonBytes));
  }
  return absl::OkStatus();
}

absl::Status ResolveSaving(v1::BatchSpec& batch) {
  PENSTOCK_RETURN_IF_ERROR(CheckEnum("batch.activation_checkpointing",
                                     v1::ActivationCheckpointing_descriptor(),
                                     batch.activation_checkpointing()));
  if (batch.activation_checkpointing() == v1::ACTIVATION_CHECKPOINTING_UNSPECIFIED) {
    batch.set_activation_checkpointing(v1::ACTIVATION_CHECKPOINTING_SAVE_ALL);
  }
  return absl::OkStatus();
}

absl::Status ResolveBatch(v1::BatchSpec& batch) {
  PENSTOCK_RETURN_IF_ERROR(
      CheckInteger("batch.sequence_length", batch.sequence_length(), 2, kMaxSequenceLength));
  PENSTOCK_RETURN_IF_ERROR(
      CheckInteger("batch.tokens_per_step", batch.tokens_per_step(), 2, kMaxTokensPerStep));
  const int64_t length = batch.sequence_length();
  if (batch.tokens_per_step() % length != 0) {
    return FieldError("batch.tokens_per_step", absl::StrCat(batch.tokens_per_step()),
                      absl::StrCat("a multiple of batch.sequence_length (", length, "), such as ",
                                   (batch.tokens_per_step() / length + 1) * length));
  }
  if (batch.micro_batch_tokens() == 0) return ResolveSaving(batch);  // the planner's choice
  PENSTOCK_RETURN_IF_ERROR(CheckInteger("batch.micro_batch_tokens", batch.micro_batch_tokens(),
                                        length, batch.tokens_per_step()));
  if (batch.micro_batch_tokens() % length != 0 ||
      batch.tokens_per_step() % batch.micro_batch_tokens() != 0) {
    return FieldError("batch.micro_batch_tokens", absl::StrCat(batch.micro_batch_tokens()),
                      absl::StrCat("a multiple of batch.sequence_length (", length,
                                   ") that divides batch.tokens_per_step (",
                                   batch.tokens_per_step(), "), such as ", length));
  }
  return ResolveSaving(batch);
}

absl::Status ResolveOptimizer(v1::OptimizerSpec& optimizer) {
  PENSTOCK_RETURN_IF_ERROR(
      CheckEnum("optimizer.kind", v1::OptimizerKind_descriptor(), optimizer.kind()));
  if (optimizer.kind() == v1::OPTIMIZER_KIND_UNSPECIFIED) {
    optimizer.set_kind(v1::OPTIMIZER_KIND_ADAMW);
  }
  if (!optimizer.has_learning_rate()) {
    return FieldError("optimizer.learning_rate", "nothing", "a number from 0 to 1, such as 1e-4");
  }
  if (!optimizer.has_beta1()) optimizer.set_beta1(0.9);
  if (!optimizer.has_beta2()) optimizer.set_beta2(0.999);
  if (!optimizer.has_epsilon()) optimizer.set_epsilon(1e-8);
  if (!optimizer.has_max_grad_norm()) optimizer.set_max_grad_norm(1);
  if (!optimizer.has_max_nonfinite_steps()) optimizer.set_max_nonfinite_steps(10);
  PENSTOCK_RETURN_IF_ERROR(
      CheckDouble("optimizer.learning_rate", optimizer.learning_rate(), {.low = 0, .high = 1}));
  const DoubleRange beta{.low = 0, .high = 1, .high_allowed = false};
  PENSTOCK_RETURN_IF_ERROR(CheckDouble("optimizer.beta1", optimizer.beta1(), beta));
  PENSTOCK_RETURN_IF_ERROR(CheckDouble("optimizer.beta2", optimizer.beta2(), beta));
  PENSTOCK_RETURN_IF_ERROR(CheckDouble("optimizer.epsilon", optimizer.epsilon(),
                                       {.low = 0, .high = 1, .low_allowed = false}));
  PENSTOCK_RETURN_IF_ERROR(
      CheckDouble("optimizer.weight_decay", optimizer.weight_decay(), {.low = 0, .high = 1000}));
  PENSTOCK_RETURN_IF_ERROR(
      CheckDouble("optimizer.max_grad_norm", optimizer.max_grad_norm(), {.low = 0, .high = 1e30}));
  PENSTOCK_RETURN_IF_ERROR(
      CheckInteger("optimizer.max_nonfinite_steps", optimizer.max_nonfinite_steps(), 1, kMaxSteps));
  if (optimizer.update_with_backward() && optimizer.max_grad_norm() != 0) {
    return FieldError("optimizer.update_with_backward",
                      absl::StrFormat("true, and max_grad_norm %.10g", optimizer.max_grad_norm()),
                      "optimizer.max_grad_norm: 0 with it: the norm of all gradients is known only "
                      "when all are complete");
  }
  if (optimizer.learning_rate() * optimizer.weight_decay() >= 1) {
    return FieldError("optimizer.weight_decay", absl::StrFormat("%.10g", optimizer.weight_decay()),
                      "a number below 1 / learning_rate: above that a step turns weights round");
  }
  return absl::OkStatus();
}

absl::Status CheckDecay(const v1::ScheduleSpec& schedule) {
  if (schedule.kind() != v1::SCHEDULE_KIND_WARMUP_STABLE_DECAY) {
    if (schedule.decay_steps() == 0) return absl::OkStatus();
    return UnusedFieldError("schedule.decay_steps", "unless schedule.kind is warmup_stable_decay");
  }
  return CheckInteger(
      "schedule.decay_steps", schedule.decay_steps(), 0,
      schedule.max_steps() != 0 ? schedule.max_steps() - schedule.warmup_steps() : kMaxSteps);
}

absl::Status ResolveSchedule(v1::ScheduleSpec& schedule) {
  PENSTOCK_RETURN_IF_ERROR(
      CheckEnum("schedule.kind", v1::ScheduleKind_descriptor(), schedule.kind()));
  if (schedule.kind() == v1::SCHEDULE_KIND_UNSPECIFIED) {
    schedule.set_kind(v1::SCHEDULE_KIND_COSINE);
  }
  if (schedule.max_steps() == 0 && schedule.epochs() == 0) {
    return FieldError("schedule", "neither max_steps nor epochs", "one of them");
  }
  if (schedule.max_steps() != 0 && schedule.epochs() != 0) {
    return FieldError("schedule", "both max_steps and epochs", "one of them; remove the other");
  }
  if (schedule.epochs() != 0) {
    PENSTOCK_RETURN_IF_ERROR(CheckInteger("schedule.epochs", schedule.epochs(), 1, kMaxEpochs));
  } else {
    PENSTOCK_RETURN_IF_ERROR(
        CheckInteger("schedule.max_steps", schedule.max_steps(), 1, kMaxSteps));
  }
  // How many steps epochs make is known once the data is tokenized; a warm-up that is longer than
  // they are never reaches the peak rate, which is what it says.
  PENSTOCK_RETURN_IF_ERROR(
      CheckInteger("schedule.warmup_steps", schedule.warmup_steps(), 0,
                   schedule.max_steps() != 0 ? schedule.max_steps() : kMaxSteps));
  PENSTOCK_RETURN_IF_ERROR(
      CheckDouble("schedule.final_fraction", schedule.final_fraction(), {.low = 0, .high = 1}));
  const bool ends_lower = schedule.kind() == v1::SCHEDULE_KIND_LINEAR ||
                          schedule.kind() == v1::SCHEDULE_KIND_COSINE ||
                          schedule.kind() == v1::SCHEDULE_KIND_WARMUP_STABLE_DECAY;
  if (!ends_lower && schedule.final_fraction() != 0) {
    return UnusedFieldError("schedule.final_fraction",
                            "with a constant or an inverse_sqrt schedule");
  }
  if (schedule.kind() == v1::SCHEDULE_KIND_INVERSE_SQRT && schedule.warmup_steps() == 0) {
    return FieldError("schedule.warmup_steps", "0",
                      "1 or more with an inverse_sqrt schedule, which falls from the peak that the "
                      "warm-up reaches");
  }
  return CheckDecay(schedule);
}

// The compute type is resolved with the device. What no job runs with is for PlanJob.
absl::Status ResolvePrecision(v1::PrecisionSpec& precision) {
  PENSTOCK_RETURN_IF_ERROR(
      CheckEnum("precision.compute", v1::ComputeType_descriptor(), precision.compute()));
  PENSTOCK_RETURN_IF_ERROR(CheckEnum("precision.optimizer_state", v1::StateType_descriptor(),
                                     precision.optimizer_state()));
  if (precision.optimizer_state() == v1::STATE_TYPE_UNSPECIFIED) {
    precision.set_optimizer_state(v1::STATE_TYPE_FLOAT32);
  }
  return absl::OkStatus();
}

bool Evaluates(const v1::EvaluationSpec& evaluation) {
  return evaluation.validation_fraction() > 0 || evaluation.validation_documents() > 0 ||
         !evaluation.validation_paths().empty() || !evaluation.validation_datasets().empty();
}

// What is given and asks for evaluations that the job does not make.
absl::Status CheckEvaluationsFor(const std::string& field, bool given,
                                 const v1::EvaluationSpec& evaluation) {
  if (!given || (Evaluates(evaluation) && evaluation.every_steps() > 0)) return absl::OkStatus();
  return UnusedFieldError(field,
                          "unless the job evaluates while it trains (evaluation.every_steps, "
                          "and held-out or validation data)");
}

absl::Status ResolveEvaluation(const v1::EvaluationSpec& evaluation) {
  PENSTOCK_RETURN_IF_ERROR(CheckDouble("evaluation.validation_fraction",
                                       evaluation.validation_fraction(), {.low = 0, .high = 0.5}));
  PENSTOCK_RETURN_IF_ERROR(CheckInteger("evaluation.validation_documents",
                                        evaluation.validation_documents(), 0,
                                        kMaxHeldOutDocuments));
  PENSTOCK_RETURN_IF_ERROR(
      CheckInteger("evaluation.every_steps", evaluation.every_steps(), 0, kMaxSteps));
  PENSTOCK_RETURN_IF_ERROR(CheckInteger("evaluation.early_stopping_patience",
                                        evaluation.early_stopping_patience(), 0, kMaxSteps));
  PENSTOCK_RETURN_IF_ERROR(CheckEvaluationsFor(
      "evaluation.early_stopping_patience", evaluation.early_stopping_patience() > 0, evaluation));
  return CheckInteger("evaluation.max_tokens", evaluation.max_tokens(), 0,
                      std::numeric_limits<int64_t>::max());
}

absl::Status ResolveCheckpoints(const v1::EvaluationSpec& evaluation,
                                v1::CheckpointSpec& checkpoints) {
  PENSTOCK_RETURN_IF_ERROR(
      CheckInteger("checkpoints.every_steps", checkpoints.every_steps(), 0, kMaxSteps));
  PENSTOCK_RETURN_IF_ERROR(CheckInteger("checkpoints.every_seconds", checkpoints.every_seconds(), 0,
                                        kMaxCheckpointSeconds));
  PENSTOCK_RETURN_IF_ERROR(
      CheckInteger("checkpoints.keep_every_steps", checkpoints.keep_every_steps(), 0, kMaxSteps));
  PENSTOCK_RETURN_IF_ERROR(
      CheckEvaluationsFor("checkpoints.keep_best", checkpoints.keep_best(), evaluation));
  if (!checkpoints.has_keep_last()) checkpoints.set_keep_last(2);
  return CheckInteger("checkpoints.keep_last", checkpoints.keep_last(), 1, kMaxKeptCheckpoints);
}

absl::Status ResolveLossSpikes(v1::LossSpikeSpec& spikes) {
  if (!spikes.has_threshold()) spikes.set_threshold(6);
  PENSTOCK_RETURN_IF_ERROR(
      CheckDouble("loss_spikes.threshold", spikes.threshold(), {.low = 3, .high = 1000}));
  PENSTOCK_RETURN_IF_ERROR(
      CheckEnum("loss_spikes.response", v1::SpikeResponse_descriptor(), spikes.response()));
  if (spikes.response() == v1::SPIKE_RESPONSE_UNSPECIFIED) {
    spikes.set_response(v1::SPIKE_RESPONSE_REPORT);
  }
  const bool rolls_back = spikes.response() == v1::SPIKE_RESPONSE_ROLL_BACK;
  if (!rolls_back && spikes.skip_steps() != 0) {
    return UnusedFieldError("loss_spikes.skip_steps", "unless loss_spikes.response is ROLL_BACK");
  }
  PENSTOCK_RETURN_IF_ERROR(
      CheckInteger("loss_spikes.skip_steps", spikes.skip_steps(), 0, kMaxSkipSteps));
  if (!spikes.has_max_rollbacks()) spikes.set_max_rollbacks(3);
  return CheckInteger("loss_spikes.max_rollbacks", spikes.max_rollbacks(), 1, 100);
}

absl::Status ResolveOutput(const Roots& roots, const v1::ModelSource& model,
                           v1::OutputSpec& output) {
  PENSTOCK_RETURN_IF_ERROR(
      CheckEnum("output.export_type", v1::ExportType_descriptor(), output.export_type()));
  const bool type_given = output.export_type() != v1::EXPORT_TYPE_UNSPECIFIED;
  if (type_given && model.has_directory()) {
    return UnusedFieldError("output.export_type",
                            "on a model from a directory, which keeps the types it came with");
  }
  if (output.directory().empty()) {
    if (type_given) return UnusedFieldError("output.export_type", "without output.directory");
    return absl::OkStatus();
  }
  if (!model.has_directory() && !type_given) output.set_export_type(v1::EXPORT_TYPE_FLOAT32);
  PENSTOCK_ASSIGN_OR_RETURN(*output.mutable_directory(),
                            CheckNewPath("output.directory", output.directory(), roots));
  if (model.has_directory() &&
      absl::StartsWith(output.directory(), absl::StrCat(model.directory(), "/"))) {
    return FieldError("output.directory", output.directory(),
                      absl::StrCat("a path outside the model's own directory ", model.directory()));
  }
  return absl::OkStatus();
}

absl::Status ResolveLimits(v1::LimitsSpec& limits) {
  PENSTOCK_RETURN_IF_ERROR(CheckInteger("limits.host_memory_bytes", limits.host_memory_bytes(), 0,
                                        std::numeric_limits<int64_t>::max()));
  PENSTOCK_RETURN_IF_ERROR(
      CheckInteger("limits.compute_threads", limits.compute_threads(), 0, kMaxThreads));
  PENSTOCK_RETURN_IF_ERROR(CheckInteger("limits.device_memory_bytes", limits.device_memory_bytes(),
                                        0, std::numeric_limits<int64_t>::max()));
  PENSTOCK_RETURN_IF_ERROR(
      CheckEnum("limits.page_lock", v1::PageLock_descriptor(), limits.page_lock()));
  PENSTOCK_RETURN_IF_ERROR(
      CheckInteger("limits.run_seconds", limits.run_seconds(), 0, kMaxRunSeconds));
  if (!limits.has_grace_seconds()) limits.set_grace_seconds(1800);
  PENSTOCK_RETURN_IF_ERROR(
      CheckInteger("limits.grace_seconds", limits.grace_seconds(), 1, kMaxRunSeconds));
  if (!limits.has_max_attempts()) limits.set_max_attempts(3);
  return CheckInteger("limits.max_attempts", limits.max_attempts(), 1, kMaxAttempts);
}

// Which jobs there are is the daemon's to know, and checked by it.
absl::Status ResolveQueue(v1::QueueSpec& queue) {
  PENSTOCK_RETURN_IF_ERROR(
      CheckEnum("queue.priority", v1::Priority_descriptor(), queue.priority()));
  if (queue.priority() == v1::PRIORITY_UNSPECIFIED) queue.set_priority(v1::PRIORITY_NORMAL);
  PENSTOCK_RETURN_IF_ERROR(
      CheckEnum("queue.after_rule", v1::AfterRule_descriptor(), queue.after_rule()));
  if (queue.after_size() > kMaxParents) {
    return FieldError("queue.after", absl::StrCat(queue.after_size(), " jobs"),
                      absl::StrCat("at most ", kMaxParents));
  }
  if (queue.after_size() == 0 && queue.after_rule() != v1::AFTER_RULE_UNSPECIFIED) {
    return UnusedFieldError("queue.after_rule", "without queue.after");
  }
  if (queue.after_size() > 0 && queue.after_rule() == v1::AFTER_RULE_UNSPECIFIED) {
    queue.set_after_rule(v1::AFTER_RULE_SUCCEEDED);
  }
  if (!queue.has_max_preemptions()) queue.set_max_preemptions(5);
  return CheckInteger("queue.max_preemptions", queue.max_preemptions(), 0, kMaxPreemptions);
}

std::vector<std::string> FindWarnings(const v1::JobSpec& spec) {
  std::vector<std::string> warnings;
  const v1::OptimizerSpec& optimizer = spec.optimizer();
  const double rate = optimizer.learning_rate();
  if (rate == 0) {
    warnings.push_back("optimizer.learning_rate is 0: the job will train nothing");
  } else if (rate > 0.1) {
    warnings.push_back(
        absl::StrFormat("optimizer.learning_rate is %.10g: rates above 0.1 mostly diverge", rate));
  }
  const double decay = rate * optimizer.weight_decay();
  if (decay > 0 && decay < kHalfUlpBelowOne) {
    warnings.push_back(absl::StrFormat(
        "optimizer.weight_decay is %.10g: times the learning rate that is %.3g, less than fp32 "
        "resolves, so weights will not decay",
        optimizer.weight_decay(), decay));
  }
  const v1::EvaluationSpec& evaluation = spec.evaluation();
  if (!Evaluates(evaluation) && (evaluation.every_steps() > 0 || evaluation.max_tokens() > 0)) {
    warnings.push_back(
        "evaluation.every_steps and max_tokens have no effect without validation_fraction, "
        "validation_documents, validation_paths or validation_datasets: nothing will be evaluated");
  }
  return warnings;
}

SaveLevel ToSaveLevel(v1::ActivationCheckpointing level) {
  switch (level) {
    case v1::ACTIVATION_CHECKPOINTING_SAVE_ATTENTION:
      return SaveLevel::kAttention;
    case v1::ACTIVATION_CHECKPOINTING_SAVE_INPUT:
      return SaveLevel::kInput;
    default:
      return SaveLevel::kAll;
  }
}

MomentType ToMomentType(v1::StateType type) {
  switch (type) {
    case v1::STATE_TYPE_BFLOAT16:
      return MomentType::kBfloat16;
    case v1::STATE_TYPE_INT8_BLOCKS:
      return MomentType::kInt8Blocks;
    default:
      return MomentType::kFloat32;
  }
}

ScheduleShape ToScheduleShape(v1::ScheduleKind kind) {
  switch (kind) {
    case v1::SCHEDULE_KIND_CONSTANT:
      return ScheduleShape::kConstant;
    case v1::SCHEDULE_KIND_LINEAR:
      return ScheduleShape::kLinear;
    case v1::SCHEDULE_KIND_WARMUP_STABLE_DECAY:
      return ScheduleShape::kWarmupStableDecay;
    case v1::SCHEDULE_KIND_INVERSE_SQRT:
      return ScheduleShape::kInverseSqrt;
    default:
      return ScheduleShape::kCosine;
  }
}

}  // namespace

TrainConfig ToTrainConfig(const v1::JobSpec& resolved) {
  TrainConfig config;
  if (resolved.model().has_directory()) {
    config.model = ModelFromDirectory{resolved.model().directory()};
  } else {
    config.model = ModelFromConfig{resolved.model().random().config_json()};
  }
  config.data = ToDataConfig(resolved.data());
  const v1::BatchSpec& batch = resolved.batch();
  config.batch = {.sequence_length = batch.sequence_length(),
                  .tokens_per_step = batch.tokens_per_step(),
                  .micro_batch_tokens = batch.micro_batch_tokens(),
                  .save_level = ToSaveLevel(batch.activation_checkpointing())};
  const v1::OptimizerSpec& optimizer = resolved.optimizer();
  config.optimizer = {.learning_rate = optimizer.learning_rate(),
                      .beta1 = optimizer.beta1(),
                      .beta2 = optimizer.beta2(),
                      .epsilon = optimizer.epsilon(),
                      .weight_decay = optimizer.weight_decay(),
                      .max_grad_norm = optimizer.max_grad_norm(),
                      .update_with_backward = optimizer.update_with_backward(),
                      .max_nonfinite_steps = optimizer.max_nonfinite_steps()};
  const v1::ScheduleSpec& schedule = resolved.schedule();
  config.schedule = {.shape = ToScheduleShape(schedule.kind()),
                     .warmup_steps = schedule.warmup_steps(),
                     .final_fraction = schedule.final_fraction(),
                     .decay_steps = schedule.decay_steps(),
                     .max_steps = schedule.max_steps(),
                     .epochs = schedule.epochs()};
  const v1::EvaluationSpec& evaluation = resolved.evaluation();
  config.evaluation.validation_fraction = evaluation.validation_fraction();
  config.evaluation.validation_documents = evaluation.validation_documents();
  config.evaluation.datasets = ToEvaluationDatasets(resolved);
  config.evaluation.every_steps = evaluation.every_steps();
  config.evaluation.max_tokens = evaluation.max_tokens();
  config.evaluation.early_stopping_patience = evaluation.early_stopping_patience();
  config.checkpoints = {.every_steps = resolved.checkpoints().every_steps(),
                        .every_seconds = resolved.checkpoints().every_seconds(),
                        .keep_last = resolved.checkpoints().keep_last(),
                        .keep_every_steps = resolved.checkpoints().keep_every_steps(),
                        .keep_best = resolved.checkpoints().keep_best()};
  const v1::LossSpikeSpec& spikes = resolved.loss_spikes();
  config.loss_spikes = {.threshold = spikes.threshold(),
                        .roll_back = spikes.response() == v1::SPIKE_RESPONSE_ROLL_BACK,
                        .skip_steps = spikes.skip_steps(),
                        .max_rollbacks = spikes.max_rollbacks()};
  config.output_directory = resolved.output().directory();
  config.export_element = ToExportElement(resolved.output().export_type());
  config.seed = resolved.seed();
  config.host_memory_bytes = resolved.limits().host_memory_bytes();
  config.compute_threads = resolved.limits().compute_threads();
  config.device.backend = resolved.device().kind() == v1::DEVICE_CHOICE_CUDA ? ComputeBackend::kCuda
                                                                             : ComputeBackend::kCpu;
  config.moment_type = ToMomentType(resolved.precision().optimizer_state());
  config.device.memory_bytes = resolved.limits().device_memory_bytes();
  config.device.page_lock = ToPageLock(resolved.limits().page_lock());
  return config;
}

absl::StatusOr<ResolvedSpec> ResolveJobSpec(const v1::JobSpec& spec,
                                            const std::vector<std::string>& allowed_roots,
                                            const DeviceOffer& offer) {
  ResolvedSpec resolved;
  resolved.spec = spec;
  v1::JobSpec& out = resolved.spec;
  PENSTOCK_RETURN_IF_ERROR(CheckKnownFields("", out));
  PENSTOCK_RETURN_IF_ERROR(CheckDisplayName("display_name", out.display_name()));
  PENSTOCK_RETURN_IF_ERROR(CheckLabels("labels", out.labels()));
  PENSTOCK_RETURN_IF_ERROR(ResolveModel(allowed_roots, *out.mutable_model()));
  PENSTOCK_RETURN_IF_ERROR(ResolveData(allowed_roots, out));
  PENSTOCK_RETURN_IF_ERROR(ResolveBatch(*out.mutable_batch()));
  PENSTOCK_RETURN_IF_ERROR(ResolveOptimizer(*out.mutable_optimizer()));
  PENSTOCK_RETURN_IF_ERROR(ResolveSchedule(*out.mutable_schedule()));
  PENSTOCK_RETURN_IF_ERROR(ResolvePrecision(*out.mutable_precision()));
  PENSTOCK_RETURN_IF_ERROR(ResolveEvaluation(out.evaluation()));
  PENSTOCK_RETURN_IF_ERROR(ResolveCheckpoints(out.evaluation(), *out.mutable_checkpoints()));
  PENSTOCK_RETURN_IF_ERROR(ResolveLossSpikes(*out.mutable_loss_spikes()));
  PENSTOCK_RETURN_IF_ERROR(ResolveOutput(allowed_roots, out.model(), *out.mutable_output()));
  PENSTOCK_RETURN_IF_ERROR(ResolveLimits(*out.mutable_limits()));
  PENSTOCK_RETURN_IF_ERROR(ResolveQueue(*out.mutable_queue()));
  PENSTOCK_RETURN_IF_ERROR(
      CheckEnum("device.kind", v1::DeviceChoice_descriptor(), out.device().kind()));
  PENSTOCK_ASSIGN_OR_RETURN(PlannedDevice device, ResolveDevice(offer, out));
  resolved.config = ToTrainConfig(out);
  const int64_t cap = out.limits().device_memory_bytes();
  resolved.config.device.memory_bytes = device.memory_bytes;
  resolved.config.device.memory_capped = cap > 0 && device.memory_bytes == cap;
  resolved.config.device.card = std::move(device.card);
  resolved.config.device.uuid = std::move(device.id);
  resolved.warnings = FindWarnings(out);
  AddDeviceWarning(offer, spec, out, resolved.warnings);
  if (cap > device.memory_bytes) {
    resolved.warnings.push_back(
        absl::StrCat("limits.device_memory_bytes is ", cap, ", more than the ", device.memory_bytes,
                     " bytes that the GPU has for a job: it has no effect"));
  }
  return resolved;
}

}  // namespace penstock::server
