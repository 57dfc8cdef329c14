// Steps of a small model, run by the executor that jobs run on, with documents of several lengths;
// their timelines give the rates (plan/fit_profile.h). So a rate is what it is while the rest of a
// step goes on: copies in both directions, AdamW beside them and alone, matmuls of a model's
// shapes.
#include "engine/train/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/labels.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/base/units.h"
#include "engine/exec/executor.h"
#include "engine/exec/gpu_devices.h"
#include "engine/memory/host_store.h"
#include "engine/nn/kernel_scratch.h"
#include "engine/plan/fit_profile.h"
#include "engine/plan/train_program.h"
#include "engine/train/random_init.h"
#include "engine/train/usable_cores.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kHeadChunkRows = 1024;
// Of products' rate here, what a card keeps in steps that hold it at its limit of power for
// minutes: it grows warm, and a calibration ends before. On nine H200s compute of 7B and 14B took
// 1.05 to 1.08 of what their calibrations gave; steps of 1.5B, which draw less, 1.00 to 1.02.
constexpr double kSustainedShare = 0.95;

void Sustain(MachineProfile& rates) {
  for (double MachineProfile::*flops :
       {&MachineProfile::matmul_flops, &MachineProfile::attention_forward_flops,
        &MachineProfile::attention_backward_flops, &MachineProfile::long_attention_forward_flops,
        &MachineProfile::long_attention_backward_flops}) {
    rates.*flops *= kSustainedShare;
  }
}

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

ModelSpec DenseSpec(int64_t hidden, int64_t intermediate, int64_t layers, int64_t vocab,
                    int64_t head_dim) {
  return {.family = "llama",
          .vocab_size = vocab,
          .hidden_size = hidden,
          .intermediate_size = intermediate,
          .num_layers = layers,
          .num_heads = hidden / head_dim,
          .num_kv_heads = hidden / head_dim / 2,
          .head_dim = head_dim,
          .max_positions = 131072,
          .rms_norm_eps = 1e-5,
          .attention_scale = 1 / std::sqrt(static_cast<double>(head_dim)),
          .rope = {.theta = 10000},
          .head = HeadWeights::kSeparate,
          .window = std::vector<int64_t>(layers, 0)};
}

// Random tokens in documents of one length.
struct Batch {
  std::vector<int32_t> ids, positions, labels, starts;

  Batch(int64_t tokens, int64_t document, int64_t vocab) : starts{0} {
    std::mt19937 random(1);
    for (int64_t i = 0; i < tokens; ++i) {
      const bool last = (i + 1) % document == 0;
      ids.push_back(static_cast<int32_t>(random() % vocab));
      positions.push_back(static_cast<int32_t>(i % document));
      labels.push_back(last ? kIgnoreLabel : static_cast<int32_t>(random() % vocab));
      if (last) starts.push_back(static_cast<int32_t>(i + 1));
    }
  }
  int64_t labelled() const { return std::ssize(ids) - (std::ssize(starts) - 1); }
  MicroBatchView view() const {
    return {.ids = ids.data(),
            .positions = positions.data(),
            .labels = labels.data(),
            .document_starts = starts.data(),
            .num_documents = std::ssize(starts) - 1,
            .tokens = std::ssize(ids)};
  }
};

// One run's model, laid out in memory. The timelines that it appends point into it.
class ModelSteps {
 public:
  ModelSteps(const CalibrationRun& run, bool cuda, int threads)
      : run_(run), cuda_(cuda), threads_(threads), layout_(MakeLayout(run.spec)) {}

  absl::Status Prepare() {
    const Policy policy = {
        .decoder_slots = 2,
        .head_chunk_rows = kHeadChunkRows,
        .gradient_type = cuda_ ? GradientType::kBfloat16 : GradientType::kFloat32,
        .update_time = run_.update_time};
    const ProgramShape shape = {
        .micro_batches = run_.micro_batches,
        .tokens_per_micro_batch = run_.tokens,
        .element_bytes = cuda_ ? 2 : 4,
        .kernel_scratch_bytes = cuda_ ? CudaKernelScratchBytes(run_.spec, run_.tokens)
                                      : CpuKernelScratchBytes(threads_)};
    PENSTOCK_ASSIGN_OR_RETURN(program_, BuildTrainProgram(run_.spec, layout_, policy, shape));
    PENSTOCK_ASSIGN_OR_RETURN(
        store_, HostStore::Create(layout_, OptimizerState::kFloat32,
                                  PlaneOf(policy, run_.spec.num_layers, run_.micro_batches)));
    ThreadPool pool(threads_);
    store_->TouchPages(pool);
    InitializeWeights(run_.spec, /*seed=*/1, *store_, pool);
    const ExecutorOptions options = {.tokens_per_micro_batch = run_.tokens,
                                     .max_positions = run_.tokens,
                                     .head_chunk_rows = kHeadChunkRows,
                                     .arena_bytes = program_.arena_bytes,
                                     .host_arena_bytes = program_.host_arena_bytes,
                                     .page_lock = PageLock::kPreferred,
                                     .threads = threads_};
    PENSTOCK_ASSIGN_OR_RETURN(executor_, cuda_ ? CreateCudaExecutor(run_.spec, *store_, options)
                                               : CreateCpuExecutor(run_.spec, *store_, options));
    return executor_->Prepare(program_);
  }

  // `enough` says whether to stop before the next step.
  template <typename Enough>
  absl::Status Measure(int64_t document, Enough enough, std::vector<MeasuredProgram>& measured) {
    const Batch batch(run_.tokens, document, run_.spec.vocab_size);
    const std::vector<MicroBatchView> views(run_.micro_batches, batch.view());
    const StepInput input = {.micro_batches = views,
                             .labelled_tokens = run_.micro_batches * batch.labelled(),
                             // With clipping no update begins before the last gradient has left.
                             .optimizer = {.learning_rate = 1e-5,
                                           .beta1 = 0.9,
                                           .beta2 = 0.999,
                                           .epsilon = 1e-8,
                                           .max_grad_norm = 1}};
    StepResult result;
    const Clock::time_point start = Clock::now();
    do {
      if (enough()) return absl::OkStatus();
      PENSTOCK_RETURN_IF_ERROR(executor_->Run(program_, input, result));
    } while (SecondsSince(start) < run_.warm_seconds);
    for (int32_t step = 0; step < run_.steps; ++step) {
      if (enough()) return absl::OkStatus();
      PENSTOCK_RETURN_IF_ERROR(executor_->Run(program_, input, result));
      std::vector<SimulatedOp> timeline;
      for (const OpTime& time : executor_->timeline()) {
        timeline.push_back(
            {static_cast<double>(time.start_ns) * 1e-9, static_cast<double>(time.end_ns) * 1e-9});
      }
      measured.push_back({program_, run_.spec, layout_,
                          CostInput{.tokens_per_micro_batch = run_.tokens,
                                    .mean_document_tokens = static_cast<double>(document),
                                    .head_chunk_rows = kHeadChunkRows,
                                    .element_bytes = cuda_ ? 2 : 4},
                          std::move(timeline)});
    }
    return absl::OkStatus();
  }

  // Gives its memory back; what the timelines point to stays.
  void Release() {
    executor_.reset();
    store_.reset();
  }

 private:
  const CalibrationRun& run_;
  const bool cuda_;
  const int threads_;
  const ModelLayout layout_;
  StepProgram program_;
  std::unique_ptr<HostStore> store_;
  std::unique_ptr<Executor> executor_;
};

class Calibration {
 public:
  Calibration(const CalibrateConfig& config, const CalibrationSizes& sizes)
      : config_(config),
        sizes_(sizes),
        cuda_(config.device.backend == ComputeBackend::kCuda),
        threads_(config.threads > 0 ? config.threads : UsableCores()) {}

  absl::StatusOr<MeasuredProfile> Run() {
    if (cuda_) PENSTOCK_RETURN_IF_ERROR(OpenGpu(config_.device.uuid).status());
    PENSTOCK_ASSIGN_OR_RETURN(const StorageRates storage,
                              MeasureStorage(config_.storage_directory, sizes_.storage_bytes));
    for (const CalibrationRun& run : sizes_.runs) PENSTOCK_RETURN_IF_ERROR(RunModel(run));
    MeasuredProfile measured{.profile = Known(), .identity = config_.identity};
    NamedProfile& profile = measured.profile;
    profile.source = ProfileSource::kCalibrated;
    profile.rates = FitProfile(measured_, profile.rates);
    if (cuda_) Sustain(profile.rates);
    profile.rates.storage_read_bytes = storage.read_bytes;
    profile.rates.storage_write_bytes = storage.write_bytes;
    measured.measuring_seconds = SecondsSince(start_);
    return measured;
  }

 private:
  // What is known of the device by its name, which is also what cannot be measured: power, sizes.
  NamedProfile Known() const {
    NamedProfile profile = CpuProfile(threads_);
    if (cuda_) {
      for (const GpuDevice& device : ListGpuDevices()) {
        if (!config_.device.uuid.empty() && device.uuid != config_.device.uuid) continue;
        profile = ProfileOfCard(device.name);
        profile.name = profile.card = device.name;
        profile.device_memory_bytes = device.memory_bytes;
        break;
      }
    }
    profile.host_memory_bytes = ReadHostMemoryLimit().usable_bytes;
    return profile;
  }

  absl::Status RunModel(const CalibrationRun& run) {
    models_.push_back(std::make_unique<ModelSteps>(run, cuda_, threads_));
    ModelSteps& model = *models_.back();
    PENSTOCK_RETURN_IF_ERROR(model.Prepare());
    for (int64_t document : run.document_tokens) {
      PENSTOCK_RETURN_IF_ERROR(model.Measure(
          document,
          [&] { return !measured_.empty() && SecondsSince(start_) > sizes_.enough_seconds; },
          measured_));
    }
    model.Release();
    return absl::OkStatus();
  }

  const CalibrateConfig& config_;
  const CalibrationSizes& sizes_;
  const bool cuda_;
  const int threads_;
  const Clock::time_point start_ = Clock::now();
  std::vector<std::unique_ptr<ModelSteps>> models_;
  std::vector<MeasuredProgram> measured_;
};

}  // namespace

// Every block is larger than caches, so that AdamW and copies are bound by memory; on a GPU matmuls
// are as large as those of a 7B model's layers, and then as small as those of a 0.5B model's. The
// micro-batches of a step keep the GPU busy from one step to the next.
CalibrationSizes DefaultCalibrationSizes(ComputeBackend backend) {
  if (backend == ComputeBackend::kCuda) {
    return {.runs = {{.spec = DenseSpec(3584, 8192, 4, 16384, 128),
                      .tokens = 8192,
                      .micro_batches = 8,
                      .document_tokens = {1024, 4096, 256},
                      .warm_seconds = 3,
                      .steps = 4,
                      .update_time = UpdateTime::kNextStep},
                     {.spec = DenseSpec(1024, 4096, 6, 32768, 128),
                      .tokens = 8192,
                      .micro_batches = 8,
                      .document_tokens = {1024},
                      .warm_seconds = 3,
                      .steps = 4}}};
  }
  return {.runs = {{.spec = DenseSpec(256, 704, 2, 8192, 64),
                    .tokens = 4096,
                    .micro_batches = 1,
                    .document_tokens = {1024, 4096, 256},
                    .steps = 1}}};
}

absl::StatusOr<MeasuredProfile> CalibrateWith(const CalibrateConfig& config,
                                              const CalibrationSizes& sizes) {
  return Calibration(config, sizes).Run();
}

absl::StatusOr<MeasuredProfile> Calibrate(const CalibrateConfig& config) {
  return CalibrateWith(config, DefaultCalibrationSizes(config.device.backend));
}

std::string MachineIdentity(const std::string& device) {
  std::string cpu = "unknown CPU";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos) {
      cpu = std::string(absl::StripAsciiWhitespace(absl::string_view(line).substr(colon + 1)));
    }
    break;
  }
  int64_t memory_kib = 0;
  std::ifstream memory("/proc/meminfo");
  for (std::string key; memory >> key;) {
    if (key == "MemTotal:") {
      memory >> memory_kib;
      break;
    }
  }
  return absl::StrCat(device, device.empty() ? "" : "; ", UsableCores(), " cores of ", cpu, "; ",
                      FormatBytes(memory_kib * 1024));
}

}  // namespace penstock
