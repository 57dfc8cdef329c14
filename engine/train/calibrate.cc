// Steps of a small model, run by the executor that jobs run on, with documents of several lengths;
// their timelines give the rates (plan/fit_profile.h). So a rate is what it is while the rest of a
// step goes on: copies in both directions, AdamW beside them, matmuls of a model's shapes.
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

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

ModelSpec DenseSpec(int64_t hidden, int64_t intermediate, int64_t layers, int64_t vocab) {
  constexpr int64_t kHeadDim = 64;
  return {.family = "llama",
          .vocab_size = vocab,
          .hidden_size = hidden,
          .intermediate_size = intermediate,
          .num_layers = layers,
          .num_heads = hidden / kHeadDim,
          .num_kv_heads = hidden / kHeadDim / 2,
          .head_dim = kHeadDim,
          .max_positions = 131072,
          .rms_norm_eps = 1e-5,
          .attention_scale = 1 / std::sqrt(static_cast<double>(kHeadDim)),
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

class Calibration {
 public:
  Calibration(const CalibrateConfig& config, const CalibrationSizes& sizes)
      : config_(config),
        sizes_(sizes),
        cuda_(config.device.backend == ComputeBackend::kCuda),
        threads_(config.threads > 0 ? config.threads : UsableCores()),
        layout_(MakeLayout(sizes.spec)) {}

  absl::StatusOr<MeasuredProfile> Run() {
    if (cuda_) PENSTOCK_RETURN_IF_ERROR(OpenGpu(config_.device.uuid).status());
    PENSTOCK_ASSIGN_OR_RETURN(const StorageRates storage,
                              MeasureStorage(config_.storage_directory, sizes_.storage_bytes));
    PENSTOCK_RETURN_IF_ERROR(Prepare());
    for (int64_t document : sizes_.document_tokens) PENSTOCK_RETURN_IF_ERROR(Measure(document));
    MeasuredProfile measured{.profile = Known(), .identity = config_.identity};
    NamedProfile& profile = measured.profile;
    profile.source = ProfileSource::kCalibrated;
    profile.rates = FitProfile(runs_, profile.rates);
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

  absl::Status Prepare() {
    const Policy policy = {
        .decoder_slots = 2,
        .head_chunk_rows = kHeadChunkRows,
        .gradient_type = cuda_ ? GradientType::kBfloat16 : GradientType::kFloat32,
        // On a GPU AdamW then runs beside the copies, as in a job.
        .update_time = cuda_ ? UpdateTime::kNextStep : UpdateTime::kEndOfStep};
    const ProgramShape shape = {
        .micro_batches = sizes_.micro_batches,
        .tokens_per_micro_batch = sizes_.tokens,
        .element_bytes = cuda_ ? 2 : 4,
        .kernel_scratch_bytes = cuda_ ? CudaKernelScratchBytes(sizes_.spec, sizes_.tokens)
                                      : CpuKernelScratchBytes(threads_)};
    PENSTOCK_ASSIGN_OR_RETURN(program_, BuildTrainProgram(sizes_.spec, layout_, policy, shape));
    PENSTOCK_ASSIGN_OR_RETURN(
        store_, HostStore::Create(layout_, OptimizerState::kFloat32,
                                  PlaneOf(policy, sizes_.spec.num_layers, sizes_.micro_batches)));
    ThreadPool pool(threads_);
    store_->TouchPages(pool);
    InitializeWeights(sizes_.spec, /*seed=*/1, *store_, pool);
    const ExecutorOptions options = {.tokens_per_micro_batch = sizes_.tokens,
                                     .max_positions = sizes_.tokens,
                                     .head_chunk_rows = kHeadChunkRows,
                                     .arena_bytes = program_.arena_bytes,
                                     .host_arena_bytes = program_.host_arena_bytes,
                                     .page_lock = PageLock::kPreferred,
                                     .threads = threads_};
    PENSTOCK_ASSIGN_OR_RETURN(executor_, cuda_ ? CreateCudaExecutor(sizes_.spec, *store_, options)
                                               : CreateCpuExecutor(sizes_.spec, *store_, options));
    return executor_->Prepare(program_);
  }

  absl::Status Measure(int64_t document) {
    const Batch batch(sizes_.tokens, document, sizes_.spec.vocab_size);
    const std::vector<MicroBatchView> views(sizes_.micro_batches, batch.view());
    const StepInput input = {
        .micro_batches = views,
        .labelled_tokens = sizes_.micro_batches * batch.labelled(),
        .optimizer = {.learning_rate = 1e-5, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8}};
    for (int32_t step = 0; step <= sizes_.steps; ++step) {
      if (!runs_.empty() && SecondsSince(start_) > sizes_.enough_seconds) return absl::OkStatus();
      StepResult result;
      PENSTOCK_RETURN_IF_ERROR(executor_->Run(program_, input, result));
      if (step == 0) continue;  // files, searches for kernels, clocks
      std::vector<double> seconds;
      for (const OpTime& time : executor_->timeline()) {
        seconds.push_back(static_cast<double>(time.end_ns - time.start_ns) * 1e-9);
      }
      runs_.push_back({program_, sizes_.spec, layout_,
                       CostInput{.tokens_per_micro_batch = sizes_.tokens,
                                 .mean_document_tokens = static_cast<double>(document),
                                 .head_chunk_rows = kHeadChunkRows,
                                 .element_bytes = cuda_ ? 2 : 4},
                       std::move(seconds)});
    }
    return absl::OkStatus();
  }

  const CalibrateConfig& config_;
  const CalibrationSizes& sizes_;
  const bool cuda_;
  const int threads_;
  const ModelLayout layout_;
  const Clock::time_point start_ = Clock::now();
  StepProgram program_;
  std::unique_ptr<HostStore> store_;
  std::unique_ptr<Executor> executor_;
  std::vector<MeasuredProgram> runs_;
};

}  // namespace

// Every block is larger than caches, so that AdamW and copies are bound by memory; on a GPU matmuls
// are as large as those of a 7B model's layers.
CalibrationSizes DefaultCalibrationSizes(ComputeBackend backend) {
  if (backend == ComputeBackend::kCuda) {
    return {.spec = DenseSpec(3072, 8192, 3, 16384),
            .tokens = 8192,
            .micro_batches = 2,
            .document_tokens = {1024, 4096, 256},
            .steps = 4};
  }
  return {.spec = DenseSpec(256, 704, 2, 8192),
          .tokens = 4096,
          .micro_batches = 1,
          .document_tokens = {1024, 4096, 256},
          .steps = 1};
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
