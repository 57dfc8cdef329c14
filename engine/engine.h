// What server/ may include of the engine: plan a job, run it, export a checkpoint.
//
// A TrainConfig is a job after validation, in plain structs: the engine knows no protobuf.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/data/example_rules.h"
#include "engine/data/packing.h"
#include "engine/data/report.h"
#include "engine/data/source.h"
#include "engine/memory/page_lock.h"
#include "engine/plan/machine_profile.h"
#include "engine/plan/moment_type.h"
#include "engine/plan/policy.h"
#include "engine/plan/rounding_choice.h"
#include "engine/plan/step_decision.h"

namespace penstock {

enum class ScheduleShape : uint8_t {
  kConstant,
  kLinear,
  kCosine,
  kWarmupStableDecay,
  kInverseSqrt,  // only with warm-up
};
enum class ExportElement : uint8_t { kFloat32, kBFloat16 };

struct ModelFromDirectory {
  std::string path;
};
struct ModelFromConfig {
  std::string config_json;
};

enum class TokenizerChoice : uint8_t {
  kBytes,
  kModel,  // that of the model's directory
};

struct ChatTemplateChoice {
  enum class Kind : uint8_t {
    kModel,    // of the model's directory: the one called `name`, the default one if that is empty
    kBuiltIn,  // Penstock's own of this name
    kText,     // `text`, called `name` in messages
  };
  Kind kind = Kind::kModel;
  std::string name = {};
  std::string text = {};
};

struct DataConfig {
  std::vector<DatasetSource> datasets = {};  // at least one
  Packing packing = Packing::kPacked;
  TokenizerChoice tokenizer = TokenizerChoice::kBytes;
  ChatTemplateChoice chat_template = {};
  std::string chat_arguments_json = {};  // an object, for the template; "" for none
  int64_t chat_now_unix_seconds = 0;     // what templates take for the present
  bool train_on_prompt = false;
  bool mask_history = false;
  TooLong too_long = TooLong::kDrop;
};

struct BatchConfig {
  int64_t sequence_length = 0;
  int64_t tokens_per_step = 0;
  int64_t micro_batch_tokens = 0;  // 0: PlanTraining() chooses; Train() is told
  SaveLevel save_level = SaveLevel::kAll;
};

struct OptimizerConfig {
  double learning_rate = 0;  // 0: weights and moments stay bit for bit
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;
  double max_grad_norm = 1;  // 0: no clipping
  // UpdateTime::kWithBackward, of a run that does not clip.
  bool update_with_backward = false;
  int64_t max_nonfinite_steps = 10;
};

struct ScheduleConfig {
  ScheduleShape shape = ScheduleShape::kCosine;
  int64_t warmup_steps = 0;
  double final_fraction = 0;
  int64_t decay_steps = 0;  // of kWarmupStableDecay; 0: a tenth of the run
  int64_t max_steps = 0;    // exactly one of these two is not 0
  int64_t epochs = 0;
};

struct EvaluationConfig {
  double validation_fraction = 0;
  int64_t validation_documents = 0;          // of each dataset; not beside a fraction
  std::vector<DatasetSource> datasets = {};  // to evaluate on instead
  int64_t every_steps = 0;
  int64_t max_tokens = 0;
  // Evaluations by every_steps without a new lowest loss that end the run. 0: none do.
  int64_t early_stopping_patience = 0;
};

enum class ComputeBackend : uint8_t {
  kCpu,   // fp32
  kCuda,  // bf16 on one GPU
};

// What the CUDA context, its libraries and their workspace take of a GPU beside a job's plan.
inline constexpr int64_t kDeviceReserveBytes = int64_t{3} << 29;

struct DeviceConfig {
  ComputeBackend backend = ComputeBackend::kCpu;
  // Of kCuda. The GPU that this process takes, which CUDA_VISIBLE_DEVICES may not hide; not needed
  // for planning.
  std::string uuid = {};
  // What memory_bytes is, where limits.device_memory_bytes is less than the GPU has.
  bool memory_capped = false;
  // What the driver calls the GPU: steps are predicted by what is known of such a card. Empty: an
  // H100 is assumed.
  std::string card = {};
  // Rates of the device and this machine, measured. Unset: what is known by the card's name.
  std::optional<NamedProfile> profile = {};
  // For a plan: a machine as FindMachine() knows it, whose rates and host memory are taken instead
  // of this one's. Empty: this one.
  std::string planned_machine = {};
  // Device memory that a plan may take. PlanTraining() needs it; Train() takes what the GPU has
  // free if that is less, or if this is 0.
  int64_t memory_bytes = 0;
  PageLock page_lock = PageLock::kRequired;
};

// When a run saves, beside its end, and which checkpoints stay.
struct CheckpointConfig {
  int64_t every_steps = 0;       // 0: not by steps
  int64_t every_seconds = 0;     // 0: not by time
  int64_t keep_last = 2;         // the newest, at least 1
  int64_t keep_every_steps = 0;  // those of multiples are saved, and stay; 0: none
  bool keep_best = false;        // that with the lowest evaluation loss is saved, and stays
};

// What becomes of a step whose loss is far above those of the steps before.
struct LossSpikeConfig {
  double threshold = 6;  // standard deviations above their mean
  // Go back to the newest checkpoint, and leave out the data of the steps since and of skip_steps
  // more. Otherwise a spike is only told.
  bool roll_back = false;
  int64_t skip_steps = 0;
  int64_t max_rollbacks = 3;  // later spikes are only told
};

// Who makes a checkpoint or an export: what its provenance.json says of that.
struct ProvenanceConfig {
  std::string job = {};  // jobs/{id}
  int64_t attempt = 0;
  std::string spec = {};              // of the job, resolved, as text
  std::string signing_key_path = {};  // engine/provenance/signing_key.h; empty: not signed
};

struct TrainConfig {
  std::variant<ModelFromDirectory, ModelFromConfig> model;
  DataConfig data;
  BatchConfig batch;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  EvaluationConfig evaluation;
  CheckpointConfig checkpoints = {};
  LossSpikeConfig loss_spikes = {};
  std::string output_directory;  // empty: no export
  ExportElement export_element = ExportElement::kFloat32;
  uint64_t seed = 0;
  int64_t host_memory_bytes = 0;  // 0: ReadHostMemoryLimit()
  int32_t compute_threads = 0;    // 0: all cores this process may use
  DeviceConfig device = {};
  MomentType moment_type = MomentType::kFloat32;
  // Plans only: moments lie on storage and pass through host memory once a step.
  bool moments_on_storage = false;
  // A checkpoint of another run, of the same model, to begin with: its weights, moments and
  // counters. Whatever else differs is this run's from there on. Empty: from the model, at step 0.
  std::string start_checkpoint = {};
  // What a run that goes on keeps of the plan it had, so that it rounds as before. Set by Train().
  std::optional<RoundingChoice> kept_rounding = {};
  // Where the run keeps its things; set by the worker, not needed for planning.
  std::string checkpoint_directory;  // checkpoints are checkpoint_directory/{step}
  std::string token_cache_directory;
  ProvenanceConfig provenance = {};
};

// What a job is doing.
enum class Phase : uint8_t { kData, kImport, kTrain, kEvaluate, kCheckpoint, kExport };

// How fast full steps should be on a machine like this one.
struct StepPrediction {
  // Another choice, and what it would change: a policy that was not taken and why, or a setting of
  // the job and what it would gain.
  struct Other {
    std::string words;
    std::string effect;
  };
  double step_seconds = 0;
  double tokens_per_second = 0;  // padding counted
  std::string bottleneck;        // "AdamW on the host: 0.93 s of the step exposed, ..."
  std::string machine;           // the profile: "h100-80gb-pcie5 (measured)"
  std::vector<Other> runners_up;
  std::vector<Other> settings;  // only by PlanTraining()
};

// A whole run by the prediction of its steps. Import, evaluations, checkpoints and export come on
// top.
struct JobEstimate {
  int64_t steps = 0;
  bool steps_estimated = false;  // epochs of data that have not been tokenized yet
  double seconds = 0;
  double joules = 0;  // of device and host, by the power figures of the machine profile
};

struct MemoryPlanSummary {
  struct Entry {
    std::string name;
    int64_t bytes;
  };
  // What a part of the run holds at most.
  struct PhaseMemory {
    Phase phase;
    std::string name;  // "first step", "resume", ...: a phase may have several parts
    int64_t host_bytes = 0;
    int64_t device_bytes = 0;         // of kCuda
    std::vector<Entry> classes = {};  // of the host's
  };
  int64_t host_peak_bytes = 0;
  int64_t micro_batch_tokens = 0;  // the job's, or the planner's where the job has none
  std::vector<PhaseMemory> phases;
  std::vector<Entry> classes;  // of the largest phase
  int64_t parameters = 0;
  // Of kCuda: the device's memory, by class, and the host memory that is locked for it.
  int64_t device_bytes = 0;
  std::vector<Entry> device_classes;
  int64_t locked_bytes = 0;
  // How a step runs, and why so; for people.
  std::string policy;
  std::string rounding;  // what of it another plan must share to give the same bits
  StepPrediction prediction;
  JobEstimate estimate;  // only by PlanTraining()
  // If PlanOptions asked for them.
  std::string step_program, step_trace;
};

// A plan tries changes of its job: micro-batches, larger steps, what would fit where the job does
// not. Once the programs that it built for them have so many ops, which takes some seconds, it
// answers by those that it has tried.
inline constexpr int64_t kMostTriedOps = 16'000'000;

// What PlanTraining() is to say beside the plan.
struct PlanOptions {
  bool program = false;  // ToText() of a full step's program
  bool trace = false;    // its simulated timeline, for trace viewers
  // What larger steps would gain. Takes several times as long as the plan itself.
  bool larger_steps = false;
  int64_t most_tried_ops = kMostTriedOps;
};

// Everything about a job that can be known before it runs: reads config.json and the headers
// of the weight files, looks at the data files, lays out memory. Refuses what could not run:
// docs/errors.md. Does not read weights or tokenize, and asks no device.
// HOST_MEMORY_INSUFFICIENT and DEVICE_MEMORY_INSUFFICIENT carry needed_bytes, usable_bytes,
// limit_source and say which change would fit. ResourceExhausted / SPEC_INVALID for a program that
// is too long to be shown.
absl::StatusOr<MemoryPlanSummary> PlanTraining(const TrainConfig& config,
                                               const PlanOptions& options = {});

struct InspectOptions {
  int64_t examples = 0;
  // What it may hold beside the process: HOST_MEMORY_INSUFFICIENT for data that take more, and
  // fewer threads where each may have too little. 0: what it takes.
  int64_t host_memory_bytes = 0;
  DataProgress progress = nullptr;  // a status that is not OK ends the work with it
};

// Documents of more than half of up_to tokens and at most up_to; the first bucket has all shorter
// ones.
struct LengthBucket {
  int64_t up_to = 0;
  int64_t documents = 0;
  int64_t tokens = 0;
};

struct InspectedExample {
  // Tokens in a row that are all learned, or all not.
  struct Segment {
    bool learned = false;
    std::string text = {};
    std::vector<int32_t> ids = {};
  };
  std::string location = {};
  int64_t tokens = 0;
  int64_t learned_tokens = 0;
  std::vector<Segment> segments = {};
  int64_t omitted_tokens = 0;  // at the end: a very long example is not shown whole
};

struct DataInspection {
  DataReport report;
  std::vector<std::string> notes;  // which tokenizer, which template
  std::vector<LengthBucket> lengths;
  std::vector<InspectedExample> examples;  // of the training data
};

// Reads and tokenizes all data of the job, into the token cache that the job will use, and says
// what it would be trained on. Refuses what Train() would refuse of the data. No weight is read.
absl::StatusOr<DataInspection> InspectData(const TrainConfig& config,
                                           const InspectOptions& options);

struct StepRecord {
  int64_t step = 0;  // from 1
  int64_t epoch = 0;
  double loss = 0;
  int64_t labelled_tokens = 0;
  int64_t real_tokens = 0;
  int64_t padding_tokens = 0;  // computed beside them, to no end
  double grad_norm = 0;        // before clipping
  double clip_scale = 1;
  double learning_rate = 0;
  double step_seconds = 0;
  double predicted_step_seconds = 0;  // of a full step; 0 for a shorter one
  int64_t host_peak_bytes = 0;        // that the process has had resident so far
  int64_t planned_host_peak_bytes = 0;
  StepOutcome outcome = StepOutcome::kApplied;
  std::vector<int64_t> skipped_documents = {};  // of a step that was not applied, at most 64
  std::map<std::string, double> lane_busy_seconds = {};
  // Of step_seconds, what went by in waiting for a checkpoint that was being written.
  double checkpoint_wait_seconds = 0;
  // Standard deviations by which the loss is above those of the steps before; 0 while nobody knows.
  double loss_z_score = 0;
};

// Steps, or memory, that are not as planned, over several steps.
struct PlanMissRecord {
  int64_t step = 0;  // the last of them
  double measured_step_seconds = 0, predicted_step_seconds = 0;
  int64_t host_peak_bytes = 0, planned_host_peak_bytes = 0;
  std::string machine;  // as in StepPrediction
  // The machine with rates under which the last step would have taken what it did.
  MeasuredProfile refitted;
};

struct EvaluationRecord {
  int64_t step = 0;  // of the model after this step
  double loss = 0;
  int64_t labelled_tokens = 0;
  double seconds = 0;
};

struct CheckpointRecord {
  int64_t step = 0;
  int64_t bytes = 0;
  double loss = 0;
  std::optional<double> evaluation_loss = {};  // of the model after the step, if it was evaluated
  std::string directory;
  double write_seconds = 0;            // from the end of the step until it was on the device
  double waited_seconds = 0;           // of that, what training waited for it
  std::string provenance_sha256 = {};  // of provenance.json
};

// Where a run goes on from.
struct ResumeRecord {
  int64_t step = 0;
  int64_t tokens = 0;          // trained on up to there
  std::optional<double> loss;  // of the step
  std::string directory;
};

enum class Wish : uint8_t { kContinue, kStop };

// Called from the training thread. Implementations return quickly and never throw.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void OnLog(const std::string& line) = 0;
  // `fraction` of the phase done, 0 to 1. The first call with kTrain says that set-up is over.
  virtual void OnPhase(Phase phase, double fraction) = 0;
  // Before the first step.
  virtual void OnTotalSteps(int64_t total_steps) = 0;
  virtual void OnStep(const StepRecord& record) = 0;
  // Once, and again only after all had been as planned.
  virtual void OnPlanMissed(const PlanMissRecord& record) = 0;
  virtual void OnEvaluation(const EvaluationRecord& record) = 0;
  // Before the first step, if the run does not start from step 0.
  virtual void OnResumed(const ResumeRecord& record) = 0;
  // Steps go on while a checkpoint is written: that it is there, or could not be written, is told
  // after a later step.
  virtual void OnCheckpointSaved(const CheckpointRecord& record) = 0;
  virtual void OnCheckpointRemoved(int64_t step) = 0;
  // It could not be written. Training goes on; another is tried when one is due, or in a minute.
  virtual void OnCheckpointFailed(int64_t step, const absl::Status& error) = 0;
  // Asked between steps. True, once a request: save a checkpoint of the last finished step, unless
  // there is one, while steps go on.
  virtual bool TakeSaveRequest() = 0;
  // Asked after each step. True, once a request: OnStepTrace() is to get its timeline.
  virtual bool TakeTraceRequest() { return false; }
  // What each lane did in the step, measured, as JSON for trace viewers.
  virtual void OnStepTrace(const std::string& /*chrome_trace*/) {}
  // Asked between steps and now and then in long phases. kStop: save a checkpoint of the last
  // finished step (none if there is none yet) and return.
  virtual Wish Ask() = 0;
};

enum class TrainEnd : uint8_t {
  kFinished,
  kStopped,     // as it was asked to; its last finished step is saved
  kRolledBack,  // after a loss spike: Train() again goes on from the checkpoint before it
};

struct TrainSummary {
  TrainEnd end = TrainEnd::kFinished;
  int64_t steps = 0;
  std::string output_directory = {};  // empty if nothing was exported
  std::string early_stop = {};        // why it has finished before its last step; empty: it has not
};

// Runs a job to its end in this process: data, weights, steps, evaluations, checkpoints, export.
// Starts from the newest intact checkpoint in checkpoint_directory, and from start_checkpoint or
// step 0 if there is none; from there on every bit is what it would have been without the
// interruption. FailedPrecondition / CHECKPOINT_MISMATCH if that checkpoint is of another run. A
// checkpoint that cannot be written fails the run only where its work would be lost: at the end,
// unless it was exported, and after a wish to stop.
absl::StatusOr<TrainSummary> Train(const TrainConfig& config, TrainObserver& observer);

struct ExportConfig {
  std::string checkpoint_directory;
  std::string output_directory;
  // Unset: the types that the model came with, or that its job asked for.
  std::optional<ExportElement> export_element;
  int32_t threads = 0;  // 0: all cores this process may use
  // A file that says that the job has begun to export to a place where nothing was: if it is there,
  // and the output too, an attempt before this one has made it and died before it could say so.
  std::string note_path = {};
  ProvenanceConfig provenance = {};
};
absl::Status RunExport(const ExportConfig& config, TrainObserver& observer);

// A profile as text, and back: what `penstock calibrate` keeps. InvalidArgument / PROFILE_INVALID
// naming `origin`, the key and what is wrong.
std::string ProfileJson(const MeasuredProfile& profile);
absl::StatusOr<MeasuredProfile> ParseProfileJson(const std::string& text,
                                                 const std::string& origin);

struct CalibrateConfig {
  DeviceConfig device;            // backend and, of a GPU, uuid
  std::string storage_directory;  // where storage is measured
  std::string identity;           // goes into the profile
  int32_t threads = 0;            // 0: all cores this process may use
};
// Measures what this machine does with steps of small models, and its storage, in less than a
// minute: the rates under which the planner's cost model gives the timelines that were seen.
absl::StatusOr<MeasuredProfile> Calibrate(const CalibrateConfig& config);

// What a profile of this machine says of it: `device` (card and driver, or empty), CPU, memory.
std::string MachineIdentity(const std::string& device);

// A machine that plans can be made for without having it.
struct MachineInfo {
  std::string name;
  std::string card;  // as in DeviceConfig
  int64_t device_memory_bytes = 0, host_memory_bytes = 0;
};
// NotFound / SPEC_INVALID with the names there are.
absl::StatusOr<MachineInfo> FindMachine(const std::string& name);

struct CpuInfo {
  std::string description;  // cores and instruction set
  int64_t memory_bytes = 0;
};
CpuInfo DescribeCpu();

// The CUDA that this build needs, 1000 * major + 10 * minor; 0: it has no CUDA backend.
int CudaVersionOfBuild();

// Families, formats and backends of this build, as GetServerInfo reports them.
std::vector<std::string> Capabilities();

}  // namespace penstock
