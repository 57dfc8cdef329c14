#include "engine/train/training_plan.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/data/batch.h"
#include "engine/exec/host_ops.h"
#include "engine/kernels/attention.h"
#include "engine/memory/host_store.h"
#include "engine/nn/kernel_scratch.h"
#include "engine/train/checkpoint.h"
#include "engine/train/export.h"
#include "engine/train/import.h"
#include "engine/train/job_encoding.h"
#include "engine/train/policy_choice.h"
#include "engine/train/usable_cores.h"

namespace penstock {
namespace {

// Of the process before it holds anything of the job: code, libraries, RPC buffers.
constexpr int64_t kProcessBytes = int64_t{96} << 20;
// Building a token cache: read and write buffers, then one row with its tokens and labels, or what
// the threads work on together.
constexpr int64_t kTokenizingBytes = int64_t{32} << 20;
constexpr int64_t kTokenizingBytesPerRowByte = 5;
constexpr int64_t kTokenizingBytesPerGroupByte = 12;
// A tokenizer in memory, for each byte of its files.
constexpr int64_t kTokenizerBytesPerFileByte = 12;
// The CUDA context's share of the host: driver, libraries, their tables, stacks of the threads. A
// job of 1.5B parameters has been seen with 270 MiB beside its store.
constexpr int64_t kCudaProcessBytes = int64_t{384} << 20;

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

int64_t TokenizingBytes(int64_t data_bytes) {
  return kTokenizingBytes +
         std::max(kTokenizingBytesPerRowByte * std::min(data_bytes, kMaxLineBytes),
                  kTokenizingBytesPerGroupByte * std::min(data_bytes, kTextGroupBytes));
}

// The memory of each phase, class by class.
class MemorySummary {
 public:
  explicit MemorySummary(int64_t parameters) { summary_.parameters = parameters; }

  void AddPhase(Phase phase, std::string name, int64_t device_bytes,
                std::vector<MemoryPlanSummary::Entry> entries) {
    int64_t bytes = 0;
    for (const auto& entry : entries) bytes += entry.bytes;
    if (bytes > summary_.host_peak_bytes) {
      summary_.host_peak_bytes = bytes;
      summary_.classes = entries;
    }
    summary_.phases.push_back({.phase = phase,
                               .name = std::move(name),
                               .host_bytes = bytes,
                               .device_bytes = device_bytes,
                               .classes = std::move(entries)});
  }
  MemoryPlanSummary Take() { return std::move(summary_); }

 private:
  MemoryPlanSummary summary_;
};

std::vector<MemoryPlanSummary::Entry> ArenaEntries(const StepProgram& program,
                                                   const Policy& policy) {
  std::vector<MemoryPlanSummary::Entry> entries;
  for (const auto& [buffer_class, bytes] : BytesByClass(program, Arena::kDevice)) {
    std::string name = BufferClassName(buffer_class);
    if (buffer_class == BufferClass::kScratch) {
      absl::StrAppend(&name, " (", policy.head_chunk_rows, " rows)");
    }
    entries.push_back({std::move(name), bytes});
  }
  return entries;
}

// What of the moments, which take so much in all, lies in host memory.
int64_t MomentHostBytes(const TrainConfig& config, const ModelLayout& layout, int64_t all_bytes) {
  if (!config.moments_on_storage) return all_bytes;
  // From storage they come a block at a time: one is updated, one arrives, one leaves.
  constexpr int64_t kPassing = 3;
  return MomentBytes(config.moment_type, kPassing * layout.max_decoder_block_size);
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
  const OptimizerState state = StateOf(config.moment_type);
  const int64_t with_state = store_bytes(state, GradientPlane::kNone);
  const int64_t whole = store_bytes(state, GradientPlaneOf(model.spec, plan));
  const int64_t moments = MomentHostBytes(config, model.layout, with_state - weights);
  const bool cuda = OnCuda(config);
  std::vector<MemoryPlanSummary::Entry> store = {
      {"process and side files", kProcessBytes + (cuda ? kCudaProcessBytes : 0) + side_file_bytes},
      {"master weights", weights},
      {"optimizer state", moments},
      {"host gradients", whole - with_state}};
  std::vector<MemoryPlanSummary::Entry> train = store;
  if (!cuda) {
    int64_t unaligned = 0;
    for (auto& entry : ArenaEntries(program, plan.policy)) {
      unaligned += entry.bytes;
      train.push_back(std::move(entry));
    }
    train.push_back({"between buffers", program.arena_bytes - unaligned});
  }
  if (plan.executor.host_arena_bytes > 0) {
    const bool passing = plan.policy.update_time == UpdateTime::kWithBackward;
    train.push_back({passing ? "saved tensors, gradients on their way" : "saved tensors",
                     plan.executor.host_arena_bytes});
  }
  if (!cuda) {
    train.push_back(
        {"backend tables and threads", CpuExecutorOverheadBytes(model.spec, plan.executor)});
  }
  train.push_back({"batches", (plan.micro_batches + 1) *
                                  MicroBatchBuffer::Bytes(plan.rows_per_micro_batch, sequence)});
  std::vector<double> mixing;
  for (const DatasetSource& dataset : config.data.datasets) mixing.push_back(dataset.weight);
  train.push_back({"data order (estimate)", MixturePeakBytes(windows, mixing, sequence)});
  // Checkpoints are written while training goes on.
  train.push_back({"checkpoint windows", CheckpointPeakBytes(CheckpointThreads(plan.threads))});

  const auto with = [](std::vector<MemoryPlanSummary::Entry> entries, std::string name,
                       int64_t bytes) {
    entries.push_back({std::move(name), bytes});
    return entries;
  };
  const int64_t device =
      cuda ? plan.executor.arena_bytes + RopeTableBytes(model.spec, sequence) : 0;
  MemorySummary summary(model.layout.parameter_count);
  summary.AddPhase(Phase::kData, "data", 0,
                   {{"process", kProcessBytes},
                    {"tokenizer", kTokenizerBytesPerFileByte * side_file_bytes},
                    {"tokenizing", TokenizingBytes(data_bytes)}});
  const auto windows_of = [&](const char* name) {
    return with(store, name, ImportPeakBytes(plan.threads));
  };
  // The executor, with the device's arena, comes after the weights.
  summary.AddPhase(Phase::kImport, "import", 0, windows_of("import windows"));
  summary.AddPhase(Phase::kImport, "resume", 0, windows_of("checkpoint windows"));
  // All of a step is there before the first one begins.
  summary.AddPhase(Phase::kTrain, "first step", device, train);
  summary.AddPhase(Phase::kTrain, "step", device, train);
  summary.AddPhase(Phase::kEvaluate, "evaluation", device, train);
  summary.AddPhase(Phase::kCheckpoint, "checkpoint", device, train);
  summary.AddPhase(Phase::kExport, "export", device,
                   with(train, "export windows", ExportPeakBytes(plan.threads)));
  MemoryPlanSummary result = summary.Take();
  if (cuda) {
    result.device_classes = ArenaEntries(program, plan.policy);
    result.device_classes.push_back({"rotary table", RopeTableBytes(model.spec, sequence)});
    result.device_bytes = device;
    result.locked_bytes = whole - (with_state - weights) + moments + plan.executor.host_arena_bytes;
  }
  return result;
}

// What keeps the program's length and every byte count far from overflow.
absl::Status CheckBatchBounds(const BatchConfig& batch, const ModelSpec& spec) {
  if (batch.micro_batch_tokens < 1) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
                 absl::StrCat("batch.micro_batch_tokens is ", batch.micro_batch_tokens,
                              " where it should have been chosen; give a number of rows of "
                              "batch.sequence_length"),
                 {{"field", "batch.micro_batch_tokens"}});
  }
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

// What the host has to hold beside a program's arenas, in the phases in which there are any.
int64_t HostBytesBesideArenas(const TrainConfig& config, const ModelInput& model,
                              const TrainingPlan& plan, int64_t data_bytes) {
  const MemoryPlanSummary rest = Summarize(config, model, plan, StepProgram{}, data_bytes);
  int64_t bytes = 0;
  for (const MemoryPlanSummary::PhaseMemory& part : rest.phases) {
    const bool before = part.phase == Phase::kData || part.phase == Phase::kImport;
    if (!before) bytes = std::max(bytes, part.host_bytes);
  }
  return bytes;
}

StepPrediction Predict(const TrainConfig& config, const SearchResult& found, int threads) {
  const NamedProfile profile = ProfileOf(config, threads);
  StepPrediction prediction{.step_seconds = found.best.step_seconds,
                            .tokens_per_second = static_cast<double>(config.batch.tokens_per_step) /
                                                 found.best.step_seconds,
                            .bottleneck = BindingResource(found.best),
                            .machine = absl::StrCat(std::string(profile.name), " (",
                                                    ProfileSourceName(profile.source), ")"),
                            .runners_up = {},
                            .settings = {}};
  for (const RunnerUp& other : found.runners_up) {
    prediction.runners_up.push_back({other.words, other.why});
  }
  return prediction;
}

// All but the policy.
TrainingPlan Outline(const TrainConfig& config, const ModelInput& model) {
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
  plan.policy.gradient_type = OnCuda(config) ? GradientType::kBfloat16 : GradientType::kFloat32;
  plan.executor = {.tokens_per_micro_batch = batch.micro_batch_tokens,
                   .max_positions = batch.sequence_length,
                   .page_lock = config.device.page_lock,
                   .threads = plan.threads};
  return plan;
}

// The fastest plan within the device's memory and so much of the host's, of which saved tensors
// take what the rest of the job leaves. A job whose rest is more than that gets a plan all the
// same: the caller refuses it, with the plan's numbers.
absl::StatusOr<TrainingPlan> PlanWithin(const TrainConfig& config, const ModelInput& model,
                                        int64_t data_bytes, int64_t host_bytes,
                                        SearchEffort& effort) {
  TrainingPlan plan = Outline(config, model);
  const int64_t left =
      std::max<int64_t>(0, host_bytes - HostBytesBesideArenas(config, model, plan, data_bytes));
  const int64_t of_device = std::max<int64_t>(
      0, config.device.memory_bytes - RopeTableBytes(model.spec, config.batch.sequence_length));
  PENSTOCK_ASSIGN_OR_RETURN(const SearchResult found,
                            ChoosePolicyOf({.config = config,
                                            .spec = model.spec,
                                            .layout = model.layout,
                                            .shape = plan.shape,
                                            .threads = plan.threads,
                                            .device_bytes = OnCuda(config) ? of_device : left,
                                            .host_bytes = left,
                                            .effort = effort}));
  plan.policy = found.best.policy;
  PENSTOCK_ASSIGN_OR_RETURN(const StepProgram program,
                            TrainProgram(model, plan, plan.micro_batches));
  plan.executor.head_chunk_rows = plan.policy.head_chunk_rows;
  plan.executor.mlp_chunk_rows = plan.policy.mlp_chunk_rows;
  plan.executor.arena_bytes = program.arena_bytes;
  plan.executor.host_arena_bytes = program.host_arena_bytes;
  plan.memory = Summarize(config, model, plan, program, data_bytes);
  plan.memory.micro_batch_tokens = config.batch.micro_batch_tokens;
  plan.memory.policy = found.best.words;
  plan.memory.rounding = RoundingWords(config, model.spec, plan.policy);
  plan.memory.prediction = Predict(config, found, plan.threads);
  return plan;
}

// On the CPU the search runs out of host memory; the job is then judged by its smallest plan.
absl::StatusOr<TrainingPlan> PlanOrLeast(const TrainConfig& config, const ModelInput& model,
                                         int64_t data_bytes, int64_t host_bytes,
                                         SearchEffort& effort) {
  absl::StatusOr<TrainingPlan> plan = PlanWithin(config, model, data_bytes, host_bytes, effort);
  if (OnCuda(config) || ReasonOf(plan.status()) != reason::kDeviceMemoryInsufficient) return plan;
  TrainConfig least = config;
  least.batch.save_level = SaveLevel::kInput;
  return PlanWithin(least, model, data_bytes, INT64_MAX, effort);
}

// The smallest change that fits the host, or the smallest that was tried, in words; empty if none
// does.
std::string NearestFit(const TrainConfig& config, const ModelInput& model, int64_t data_bytes,
                       int64_t usable_bytes, SearchEffort& effort) {
  TrainConfig changed = config;
  changed.batch.micro_batch_tokens = config.batch.sequence_length;
  const auto fits = [&] {
    if (!CheckBatchBounds(changed.batch, model.spec).ok()) return false;
    const auto plan = PlanOrLeast(changed, model, data_bytes, usable_bytes, effort);
    return plan.ok() && plan->memory.host_peak_bytes <= usable_bytes;
  };
  if (fits()) {
    return absl::StrCat("batch.micro_batch_tokens: ", changed.batch.micro_batch_tokens);
  }
  // Saved tensors may wait on the host; the rest grows with the model alone.
  changed.batch.tokens_per_step = config.batch.sequence_length;
  if (!fits()) return "";
  while (changed.batch.tokens_per_step * 2 < config.batch.tokens_per_step && !effort.Spent()) {
    changed.batch.tokens_per_step *= 2;
    if (fits()) continue;
    changed.batch.tokens_per_step /= 2;
    break;
  }
  return absl::StrCat("batch.tokens_per_step: ", changed.batch.tokens_per_step,
                      " and batch.micro_batch_tokens: ", changed.batch.micro_batch_tokens);
}

// The largest micro-batch below the job's that fits the device, or that of one row where too many
// would have to be tried; 0 if none does.
int64_t SmallerMicroBatch(const TrainConfig& config, const ModelInput& model, int64_t data_bytes,
                          int64_t host_bytes, SearchEffort& effort) {
  const BatchConfig& batch = config.batch;
  for (int64_t rows = batch.micro_batch_tokens / batch.sequence_length / 2; rows >= 1; --rows) {
    if (effort.Spent()) rows = 1;
    TrainConfig changed = config;
    changed.batch.micro_batch_tokens = rows * batch.sequence_length;
    if (batch.tokens_per_step % changed.batch.micro_batch_tokens != 0) continue;
    if (!CheckBatchBounds(changed.batch, model.spec).ok()) return 0;
    if (PlanWithin(changed, model, data_bytes, host_bytes, effort).ok()) {
      return changed.batch.micro_batch_tokens;
    }
  }
  return 0;
}

// What the job needs with micro-batches of one row, for jobs that do not fit even so.
std::string LeastNeeded(const TrainConfig& config, const ModelInput& model, int64_t data_bytes,
                        int64_t host_bytes, SearchEffort& effort) {
  TrainConfig changed = config;
  changed.batch.micro_batch_tokens = config.batch.sequence_length;
  if (!CheckBatchBounds(changed.batch, model.spec).ok()) return "";
  ErrorMetadata metadata =
      MetadataOf(PlanWithin(changed, model, data_bytes, host_bytes, effort).status());
  int64_t bytes = 0;
  if (!absl::SimpleAtoi(metadata["needed_bytes"], &bytes)) return "";
  return absl::StrCat(" (one row needs ", FormatBytes(bytes), ")");
}

absl::Status TooLargeForDevice(const absl::Status& status, const TrainConfig& config,
                               const ModelInput& model, int64_t data_bytes, int64_t host_bytes,
                               SearchEffort& effort) {
  ErrorMetadata metadata = MetadataOf(status);
  metadata["field"] = "batch.micro_batch_tokens";
  metadata["limit_source"] =
      config.device.memory_capped ? "limits.device_memory_bytes" : "device memory";
  const int64_t fitting = SmallerMicroBatch(config, model, data_bytes, host_bytes, effort);
  const std::string way_out =
      fitting > 0 ? absl::StrCat("fits with batch.micro_batch_tokens: ", fitting)
                  : absl::StrCat("no micro-batch fits",
                                 LeastNeeded(config, model, data_bytes, host_bytes, effort),
                                 ": lower batch.sequence_length, use a smaller model, or a GPU or "
                                 "a limit with more memory");
  return Error(status.code(), ReasonOf(status),
               absl::StrCat(std::string(status.message()), " (limit: ",
                            config.device.memory_capped
                                ? std::string("limits.device_memory_bytes")
                                : absl::StrCat("what the GPU has less ",
                                               FormatBytes(kDeviceReserveBytes), " for CUDA"),
                            "); ", way_out),
               metadata);
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

CostInput CostOf(const TrainConfig& config, const TrainingPlan& plan) {
  return {.tokens_per_micro_batch = plan.shape.tokens_per_micro_batch,
          .mean_document_tokens = static_cast<double>(config.batch.sequence_length),
          .head_chunk_rows = plan.policy.head_chunk_rows,
          .element_bytes = plan.shape.element_bytes,
          .moment_type = config.moment_type};
}

HostMemoryLimit UsableHostMemory(const TrainConfig& config) {
  const absl::StatusOr<NamedProfile> planned = FindMachineProfile(config.device.planned_machine);
  HostMemoryLimit limit =
      planned.ok() ? HostMemoryLimit{planned->host_memory_bytes, std::string(planned->name)}
                   : ReadHostMemoryLimit();
  if (config.host_memory_bytes > 0 && config.host_memory_bytes < limit.usable_bytes) {
    limit = {config.host_memory_bytes, "limits.host_memory_bytes"};
  }
  return limit;
}

absl::StatusOr<int64_t> DataFileBytes(const TrainConfig& config) {
  std::vector<std::string> paths;
  for (const auto* datasets : {&config.data.datasets, &config.evaluation.datasets}) {
    for (const DatasetSource& dataset : *datasets) {
      paths.insert(paths.end(), dataset.source.paths.begin(), dataset.source.paths.end());
    }
  }
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

GradientPlane GradientPlaneOf(const ModelSpec& spec, const TrainingPlan& plan) {
  return PlaneOf(plan.policy, spec.num_layers, plan.micro_batches);
}

static_assert(kWidestFusedHead == kLargestCudnnHeadDim);

namespace {

absl::Status CheckShapes(const TrainConfig& config, const ModelInput& model) {
  PENSTOCK_RETURN_IF_ERROR(CheckBatchBounds(config.batch, model.spec));
  if (OnCuda(config) && model.spec.head_dim > kLargestCudaHeadDim) {
    return Error(absl::StatusCode::kUnimplemented, reason::kFeatureUnsupported,
                 absl::StrCat("the model's head_dim is ", model.spec.head_dim,
                              "; on a GPU it may be at most ", kLargestCudaHeadDim,
                              "; run the job with device.kind CPU"),
                 {{"field", "device.kind"}});
  }
  if (config.batch.sequence_length > model.spec.max_positions) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kSpecInvalid,
                 absl::StrCat("batch.sequence_length ", config.batch.sequence_length,
                              " is more than the model's max_position_embeddings ",
                              model.spec.max_positions, "; lower it"),
                 {{"field", "batch.sequence_length"}});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TrainingPlan> TryTrainingPlan(const TrainConfig& config, const ModelInput& model,
                                             int64_t data_bytes, const HostMemoryLimit& usable,
                                             SearchEffort& effort) {
  PENSTOCK_RETURN_IF_ERROR(CheckShapes(config, model));
  PENSTOCK_ASSIGN_OR_RETURN(TrainingPlan plan,
                            PlanOrLeast(config, model, data_bytes, usable.usable_bytes, effort));
  if (plan.memory.host_peak_bytes <= usable.usable_bytes) return plan;
  return TooLarge(plan.memory, usable, /*nearest=*/"");
}

absl::StatusOr<TrainingPlan> MakeTrainingPlan(const TrainConfig& config, const ModelInput& model,
                                              int64_t data_bytes, const HostMemoryLimit& usable) {
  PENSTOCK_RETURN_IF_ERROR(CheckShapes(config, model));
  SearchEffort effort{.most_ops = kMostTriedOps};
  absl::StatusOr<TrainingPlan> found =
      PlanOrLeast(config, model, data_bytes, usable.usable_bytes, effort);
  if (ReasonOf(found.status()) == reason::kDeviceMemoryInsufficient) {
    return TooLargeForDevice(found.status(), config, model, data_bytes, usable.usable_bytes,
                             effort);
  }
  PENSTOCK_ASSIGN_OR_RETURN(TrainingPlan plan, std::move(found));
  if (plan.memory.host_peak_bytes <= usable.usable_bytes) return plan;
  return TooLarge(plan.memory, usable,
                  NearestFit(config, model, data_bytes, usable.usable_bytes, effort));
}

}  // namespace penstock
