#include "engine/train/training_plan.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/data/batch.h"
#include "engine/exec/host_ops.h"
#include "engine/memory/host_store.h"
#include "engine/nn/kernel_scratch.h"
#include "engine/train/export.h"
#include "engine/train/import.h"
#include "engine/train/policy_choice.h"
#include "engine/train/usable_cores.h"

namespace penstock {
namespace {

// Of the process before it holds anything of the job: code, libraries, RPC buffers.
constexpr int64_t kProcessBytes = int64_t{96} << 20;
// Building a token cache: read and write buffers, then one row with its tokens and labels.
constexpr int64_t kTokenizingBytes = int64_t{32} << 20;
constexpr int64_t kTokenizingBytesPerRowByte = 5;
// The CUDA context's share of the host: driver, libraries, their tables.
constexpr int64_t kCudaProcessBytes = int64_t{512} << 20;

// Layers times micro-batches: a program has about two ops for each.
constexpr int64_t kMaxVisits = int64_t{1} << 18;

bool OnCuda(const TrainConfig& config) { return config.device.backend == ComputeBackend::kCuda; }

// A window holds at least one token; text gives a token a byte, JSONL at most one a two bytes.
// Documents shorter than a row are what makes more windows than bytes / sequence_length: the
// estimate allows for documents of 16 tokens.
int64_t EstimateWindows(int64_t data_bytes, int64_t sequence_length) {
  const int64_t shortest = std::min<int64_t>(sequence_length, 16);
  return data_bytes / shortest + 1;
}

// The memory of each phase, class by class.
class MemorySummary {
 public:
  explicit MemorySummary(int64_t parameters) { summary_.parameters = parameters; }

  void AddPhase(Phase phase, std::vector<MemoryPlanSummary::Entry> entries) {
    int64_t bytes = 0;
    for (const auto& entry : entries) bytes += entry.bytes;
    summary_.phase_bytes.emplace_back(phase, bytes);
    if (bytes <= summary_.host_peak_bytes) return;
    summary_.host_peak_bytes = bytes;
    summary_.classes = std::move(entries);
  }
  MemoryPlanSummary Take() { return std::move(summary_); }

 private:
  MemoryPlanSummary summary_;
};

std::vector<MemoryPlanSummary::Entry> ArenaEntries(const StepProgram& program,
                                                   const Policy& policy) {
  std::map<BufferClass, int64_t> by_class;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.arena == Arena::kDevice) by_class[buffer.buffer_class] += buffer.bytes;
  }
  std::vector<MemoryPlanSummary::Entry> entries;
  for (const auto& [buffer_class, bytes] : by_class) {
    std::string name = BufferClassName(buffer_class);
    if (buffer_class == BufferClass::kScratch) {
      absl::StrAppend(&name, " (", policy.head_chunk_rows, " rows)");
    }
    entries.push_back({std::move(name), bytes});
  }
  return entries;
}

MemoryPlanSummary Summarize(const TrainConfig& config, const ModelInput& model,
                            const TrainingPlan& plan, const StepProgram& program,
                            int64_t data_bytes) {
  const int64_t sequence = config.batch.sequence_length;
  const int64_t windows = EstimateWindows(data_bytes, sequence);
  int64_t side_file_bytes = 0;
  for (const SideFile& file : model.source.side_files) {
    side_file_bytes += static_cast<int64_t>(file.content.size());
  }
  const auto store_bytes = [&](OptimizerState state, GradientPlane gradient) {
    return HostStore::BytesNeeded(model.layout, state, gradient);
  };
  const int64_t weights = store_bytes(OptimizerState::kNone, GradientPlane::kNone);
  const int64_t with_state = store_bytes(OptimizerState::kFloat32, GradientPlane::kNone);
  const int64_t whole = store_bytes(OptimizerState::kFloat32, plan.gradients);
  const bool cuda = OnCuda(config);
  std::vector<MemoryPlanSummary::Entry> store = {
      {"process and side files", kProcessBytes + (cuda ? kCudaProcessBytes : 0) + side_file_bytes},
      {"master weights", weights},
      {"optimizer state", with_state - weights},
      {"host gradients", whole - with_state}};
  std::vector<MemoryPlanSummary::Entry> train = store;
  if (!cuda) {
    for (auto& entry : ArenaEntries(program, plan.policy)) train.push_back(std::move(entry));
  }
  if (plan.executor.host_arena_bytes > 0) {
    train.push_back({"saved tensors", plan.executor.host_arena_bytes});
  }
  train.push_back(
      {"backend tables and threads", CpuExecutorOverheadBytes(model.spec, plan.executor)});
  train.push_back({"batches", (plan.micro_batches + 1) *
                                  MicroBatchBuffer::Bytes(plan.rows_per_micro_batch, sequence)});
  train.push_back({"data order (estimate)", EpochPlanPeakBytes(windows, sequence)});

  const auto with = [](std::vector<MemoryPlanSummary::Entry> entries, std::string name,
                       int64_t bytes) {
    entries.push_back({std::move(name), bytes});
    return entries;
  };
  MemorySummary summary(model.layout.parameter_count);
  summary.AddPhase(Phase::kData,
                   {{"process", kProcessBytes},
                    {"tokenizing", kTokenizingBytes + kTokenizingBytesPerRowByte *
                                                          std::min(data_bytes, kMaxLineBytes)}});
  summary.AddPhase(Phase::kImport, with(store, "import windows", ImportPeakBytes(plan.threads)));
  summary.AddPhase(Phase::kTrain, train);
  summary.AddPhase(Phase::kEvaluate, train);
  summary.AddPhase(Phase::kCheckpoint,
                   with(train, "checkpoint windows", ExportPeakBytes(plan.threads)));
  summary.AddPhase(Phase::kExport, with(train, "export windows", ExportPeakBytes(plan.threads)));
  MemoryPlanSummary result = summary.Take();
  if (cuda) {
    result.device_classes = ArenaEntries(program, plan.policy);
    result.device_classes.push_back({"rotary table", RopeTableBytes(model.spec, sequence)});
    result.device_bytes = plan.executor.arena_bytes + RopeTableBytes(model.spec, sequence);
    result.locked_bytes = whole + plan.executor.host_arena_bytes;
  }
  return result;
}

// What keeps the program's length and every byte count far from overflow.
absl::Status CheckBatchBounds(const BatchConfig& batch, const ModelSpec& spec) {
  const int64_t micro_batches = batch.tokens_per_step / batch.micro_batch_tokens;
  if (micro_batches > kMaxVisits / spec.num_layers) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
                 absl::StrCat(micro_batches, " micro-batches a step on ", spec.num_layers,
                              " layers; at most ", kMaxVisits / spec.num_layers,
                              "; raise batch.micro_batch_tokens (now ", batch.micro_batch_tokens,
                              ") or lower batch.tokens_per_step"),
                 {{"field", "batch.micro_batch_tokens"}});
  }
  const double token_bytes = 4.0 * static_cast<double>(spec.num_layers) *
                             static_cast<double>(8 * spec.hidden_size + 4 * spec.intermediate_size +
                                                 4 * spec.q_size() + 4 * spec.kv_size());
  const double bytes = token_bytes * static_cast<double>(batch.tokens_per_step);
  if (bytes < 0x1p56) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted, reason::kHostMemoryInsufficient,
               absl::StrCat("a step of ", batch.tokens_per_step, " tokens needs more than ",
                            FormatBytes(int64_t{1} << 56), "; lower batch.tokens_per_step"),
               {{"field", "batch.tokens_per_step"}});
}

PolicyChoiceArgs ChoiceArgs(const TrainConfig& config, const ModelInput& model,
                            const TrainingPlan& plan) {
  PolicyChoiceArgs args{.backend = config.device.backend,
                        .spec = model.spec,
                        .layout = model.layout,
                        .shape = plan.shape,
                        .save_level = config.batch.save_level};
  if (OnCuda(config)) {
    args.budget_bytes = std::max<int64_t>(
        0, config.device.memory_bytes - RopeTableBytes(model.spec, config.batch.sequence_length));
  }
  return args;
}

// A plan within the device's memory; the host's is the caller's to check.
absl::StatusOr<TrainingPlan> PlanOnDevice(const TrainConfig& config, const ModelInput& model,
                                          int64_t data_bytes) {
  const BatchConfig& batch = config.batch;
  TrainingPlan plan;
  plan.rows_per_micro_batch = batch.micro_batch_tokens / batch.sequence_length;
  plan.micro_batches = batch.tokens_per_step / batch.micro_batch_tokens;
  plan.threads = config.compute_threads > 0 ? config.compute_threads : UsableCores();
  plan.shape = {.micro_batches = static_cast<int32_t>(plan.micro_batches),
                .tokens_per_micro_batch = batch.micro_batch_tokens,
                .element_bytes = OnCuda(config) ? 2 : 4,
                .kernel_scratch_bytes =
                    OnCuda(config) ? CudaKernelScratchBytes(model.spec, batch.micro_batch_tokens)
                                   : CpuKernelScratchBytes(plan.threads),
                .arena_budget_bytes = 0};
  PENSTOCK_ASSIGN_OR_RETURN(const PolicyChoice choice,
                            ChoosePolicy(ChoiceArgs(config, model, plan)));
  plan.policy = choice.policy;
  plan.gradients = OnCuda(config) ? GradientPlane::kBfloat16 : GradientPlane::kFloat32;
  plan.executor = {.tokens_per_micro_batch = batch.micro_batch_tokens,
                   .max_positions = batch.sequence_length,
                   .head_chunk_rows = plan.policy.head_chunk_rows,
                   .mlp_chunk_rows = plan.policy.mlp_chunk_rows,
                   .arena_bytes = choice.arena_bytes,
                   .host_arena_bytes = choice.host_arena_bytes,
                   .threads = plan.threads};
  plan.memory = Summarize(config, model, plan, choice.train, data_bytes);
  plan.memory.policy = choice.words;
  return plan;
}

// The gentlest change of the batch that fits, in words; empty if none does.
std::string NearestFit(const TrainConfig& config, const ModelInput& model, int64_t data_bytes,
                       int64_t usable_bytes) {
  struct Change {
    SaveLevel level;
    int64_t micro_batch_tokens;
    const char* words;
  };
  const int64_t one_row = config.batch.sequence_length;
  const Change changes[] = {
      {SaveLevel::kAttention, config.batch.micro_batch_tokens,
       "batch.activation_checkpointing: save_attention"},
      {SaveLevel::kInput, config.batch.micro_batch_tokens,
       "batch.activation_checkpointing: save_input"},
      {SaveLevel::kInput, one_row,
       "batch.activation_checkpointing: save_input with micro-batches of one row"}};
  for (const Change& change : changes) {
    TrainConfig changed = config;
    changed.batch.save_level = change.level;
    changed.batch.micro_batch_tokens = change.micro_batch_tokens;
    const auto plan = PlanOnDevice(changed, model, data_bytes);
    if (plan.ok() && plan->memory.host_peak_bytes <= usable_bytes) return change.words;
  }
  return "";
}

// The largest micro-batch below the job's that fits the device; 0 if none does.
int64_t SmallerMicroBatch(const TrainConfig& config, const ModelInput& model, int64_t data_bytes) {
  const BatchConfig& batch = config.batch;
  for (int64_t rows = batch.micro_batch_tokens / batch.sequence_length / 2; rows >= 1; --rows) {
    TrainConfig changed = config;
    changed.batch.micro_batch_tokens = rows * batch.sequence_length;
    if (batch.tokens_per_step % changed.batch.micro_batch_tokens != 0) continue;
    if (!CheckBatchBounds(changed.batch, model.spec).ok()) return 0;
    if (PlanOnDevice(changed, model, data_bytes).ok()) return changed.batch.micro_batch_tokens;
  }
  return 0;
}

// What the job needs with micro-batches of one row, for jobs that do not fit even so.
std::string LeastNeeded(const TrainConfig& config, const ModelInput& model, int64_t data_bytes) {
  TrainConfig changed = config;
  changed.batch.micro_batch_tokens = config.batch.sequence_length;
  if (!CheckBatchBounds(changed.batch, model.spec).ok()) return "";
  ErrorMetadata metadata = MetadataOf(PlanOnDevice(changed, model, data_bytes).status());
  int64_t bytes = 0;
  if (!absl::SimpleAtoi(metadata["needed_bytes"], &bytes)) return "";
  return absl::StrCat(" (one row needs ", FormatBytes(bytes), ")");
}

absl::Status TooLargeForDevice(const absl::Status& status, const TrainConfig& config,
                               const ModelInput& model, int64_t data_bytes) {
  ErrorMetadata metadata = MetadataOf(status);
  metadata["field"] = "batch.micro_batch_tokens";
  const int64_t fitting = SmallerMicroBatch(config, model, data_bytes);
  const std::string way_out =
      fitting > 0 ? absl::StrCat("fits with batch.micro_batch_tokens: ", fitting)
                  : absl::StrCat("no micro-batch fits", LeastNeeded(config, model, data_bytes),
                                 ": lower batch.sequence_length, use a smaller model, or a GPU or "
                                 "a limit with more memory");
  return Error(status.code(), ReasonOf(status),
               absl::StrCat(std::string(status.message()), "; ", way_out), metadata);
}

absl::Status TooLarge(const MemoryPlanSummary& memory, const HostMemoryLimit& usable,
                      const std::string& nearest) {
  std::string parts;
  for (const auto& entry : memory.classes) {
    absl::StrAppend(&parts, parts.empty() ? "" : ", ", entry.name, " ", FormatBytes(entry.bytes));
  }
  return Error(
      absl::StatusCode::kResourceExhausted, reason::kHostMemoryInsufficient,
      absl::StrCat("needs ", FormatBytes(memory.host_peak_bytes), " of host memory (", parts, "), ",
                   FormatBytes(usable.usable_bytes), " usable (limit: ", usable.source, "); ",
                   nearest.empty() ? "no batch setting makes it fit: use a smaller model or a "
                                     "larger limit"
                                   : absl::StrCat("fits with ", nearest)),
      {{"needed_bytes", absl::StrCat(memory.host_peak_bytes)},
       {"usable_bytes", absl::StrCat(usable.usable_bytes)},
       {"limit_source", usable.source}});
}

}  // namespace

absl::StatusOr<StepProgram> TrainProgram(const ModelInput& model, const TrainingPlan& plan,
                                         int64_t micro_batches) {
  ProgramShape shape = plan.shape;
  shape.micro_batches = static_cast<int32_t>(micro_batches);
  return BuildTrainProgram(model.spec, model.layout, plan.policy, shape);
}

absl::StatusOr<StepProgram> EvaluationProgram(const ModelInput& model, const TrainingPlan& plan) {
  ProgramShape shape = plan.shape;
  shape.micro_batches = 1;
  return BuildEvaluationProgram(model.spec, model.layout, plan.policy, shape);
}

absl::StatusOr<StepProgram> LoadProgram(const ModelInput& model, const TrainingPlan& plan) {
  return BuildLoadProgram(model.spec, model.layout, plan.policy, plan.shape);
}

absl::StatusOr<StepProgram> SettleProgram(const ModelInput& model, const TrainingPlan& plan,
                                          SettleGoal goal) {
  return BuildSettleProgram(model.spec, model.layout, plan.policy, plan.shape, goal);
}

HostMemoryLimit UsableHostMemory(const TrainConfig& config) {
  HostMemoryLimit limit = ReadHostMemoryLimit();
  if (config.host_memory_bytes > 0 && config.host_memory_bytes < limit.usable_bytes) {
    limit = {config.host_memory_bytes, "limits.host_memory_bytes"};
  }
  return limit;
}

absl::StatusOr<int64_t> DataFileBytes(const TrainConfig& config) {
  std::vector<std::string> paths = config.data.source.paths;
  paths.insert(paths.end(), config.evaluation.validation_paths.begin(),
               config.evaluation.validation_paths.end());
  int64_t bytes = 0;
  for (const std::string& path : paths) {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) {
      return Error(absl::StatusCode::kNotFound, reason::kDataInvalid,
                   absl::StrCat("data file ", path, ": ", std::strerror(errno)), {{"path", path}});
    }
    if (!S_ISREG(info.st_mode)) {
      return Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
                   absl::StrCat("data file ", path,
                                " is not a regular file; name the files "
                                "themselves"),
                   {{"path", path}});
    }
    bytes += info.st_size;
  }
  if (bytes == 0) {
    return Error(
        absl::StatusCode::kInvalidArgument, reason::kDataInvalid,
        absl::StrCat("the data files are empty (", paths.front(), " and ", paths.size() - 1,
                     " more, 0 bytes); give files with text or token ids"),
        {{"path", paths.front()}});
  }
  return bytes;
}

absl::StatusOr<TrainingPlan> MakeTrainingPlan(const TrainConfig& config, const ModelInput& model,
                                              int64_t data_bytes, const HostMemoryLimit& usable) {
  PENSTOCK_RETURN_IF_ERROR(CheckBatchBounds(config.batch, model.spec));
  if (config.batch.sequence_length > model.spec.max_positions) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
                 absl::StrCat("batch.sequence_length ", config.batch.sequence_length,
                              " is more than the model's max_position_embeddings ",
                              model.spec.max_positions, "; lower it"),
                 {{"field", "batch.sequence_length"}});
  }
  absl::StatusOr<TrainingPlan> on_device = PlanOnDevice(config, model, data_bytes);
  if (ReasonOf(on_device.status()) == reason::kDeviceMemoryInsufficient) {
    return TooLargeForDevice(on_device.status(), config, model, data_bytes);
  }
  PENSTOCK_ASSIGN_OR_RETURN(TrainingPlan plan, std::move(on_device));
  if (plan.memory.host_peak_bytes <= usable.usable_bytes) return plan;
  return TooLarge(plan.memory, usable, NearestFit(config, model, data_bytes, usable.usable_bytes));
}

absl::StatusOr<MemoryPlanSummary> PlanTraining(const TrainConfig& config) {
  PENSTOCK_ASSIGN_OR_RETURN(const ModelInput model, OpenModelInput(config));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t data_bytes, DataFileBytes(config));
  PENSTOCK_ASSIGN_OR_RETURN(const TrainingPlan plan,
                            MakeTrainingPlan(config, model, data_bytes, UsableHostMemory(config)));
  return plan.memory;
}

}  // namespace penstock
