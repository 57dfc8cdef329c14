// penstock_bench: steps of a named geometry with random weights and random tokens on the current
// GPU; one JSON object on standard output.
//
//   penstock_bench --geometry=qwen2.5-1.5b --micro_batches=4 --micro_batch_tokens=16384
//
// Every token is real: sequences fill the micro-batches, no padding. The first step pays for
// searches and first touches and is not counted, unless it is the only one; step_seconds is the
// median of the others, of which each includes the optimizer. The policy is what the flags
// (step_flags.h) say, for no planner is asked.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/step_flags.h"
#include "bench/step_search.h"
#include "bench/step_timeline.h"
#include "engine/base/labels.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/engine.h"
#include "engine/exec/executor.h"
#include "engine/exec/gpu_devices.h"
#include "engine/memory/host_memory.h"
#include "engine/nn/kernel_scratch.h"
#include "engine/plan/op_cost.h"
#include "engine/plan/simulate.h"
#include "engine/plan/train_program.h"
#include "engine/train/random_init.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kGib = 1024.0 * 1024 * 1024;

// One micro-batch; all of a step's are views of it, since their contents do not matter.
struct Batch {
  std::vector<int32_t> ids, positions, labels, starts;

  Batch(const StepFlags& flags, int64_t vocab) : starts{0} {
    std::mt19937 random(1);
    for (int64_t i = 0; i < flags.micro_batch_tokens; ++i) {
      ids.push_back(static_cast<int32_t>(random() % vocab));
      positions.push_back(static_cast<int32_t>(i % flags.sequence_length));
      const bool last = (i + 1) % flags.sequence_length == 0;
      labels.push_back(last ? kIgnoreLabel : static_cast<int32_t>(random() % vocab));
      if (last) starts.push_back(static_cast<int32_t>(i + 1));
    }
  }
  int64_t labelled() const {
    return std::count_if(labels.begin(), labels.end(),
                         [](int32_t label) { return label != kIgnoreLabel; });
  }
  MicroBatchView view() const {
    return {ids.data(),
            positions.data(),
            labels.data(),
            starts.data(),
            static_cast<int64_t>(starts.size()) - 1,
            static_cast<int64_t>(ids.size())};
  }
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Measured {
  std::vector<double> seconds;  // by step, the first left out
  StepResult last;
  double first_loss = 0;
};

absl::StatusOr<Measured> RunSteps(const StepFlags& flags, const StepProgram& program,
                                  Executor& executor, const Batch& batch) {
  const std::vector<MicroBatchView> views(flags.micro_batches, batch.view());
  const StepInput input{.micro_batches = views,
                        .labelled_tokens = flags.micro_batches * batch.labelled(),
                        .optimizer = {.learning_rate = 1e-5,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .epsilon = 1e-8,
                                      .weight_decay = 0.1,
                                      .max_grad_norm = flags.update == "backward" ? 0.0 : 1.0}};
  Measured measured;
  for (int64_t step = 0; step < flags.steps; ++step) {
    const Clock::time_point start = Clock::now();
    PENSTOCK_RETURN_IF_ERROR(executor.Run(program, input, measured.last));
    if (step == 0) {
      measured.first_loss =
          measured.last.loss_sum / static_cast<double>(measured.last.labelled_tokens);
    }
    if (step > 0 || flags.steps == 1) measured.seconds.push_back(SecondsSince(start));
  }
  return measured;
}

int64_t PeakHostBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// "580.159.04": the first word of the driver's description that is a version.
std::string DriverVersion() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    if (absl::ascii_isdigit(word[0]) && absl::StrContains(word, '.')) return word;
  }
  return "unknown";
}

absl::StatusOr<NamedProfile> MachineOf(const StepFlags& flags) {
  if (absl::EndsWith(flags.machine, ".json")) {
    std::ifstream file(flags.machine);
    std::ostringstream text;
    text << file.rdbuf();
    PENSTOCK_ASSIGN_OR_RETURN(MeasuredProfile measured,
                              ParseProfileJson(text.str(), flags.machine));
    return std::move(measured.profile);
  }
  if (!flags.machine.empty()) return FindMachineProfile(flags.machine);
  if (flags.plan_only) return FindMachineProfile("h100-80gb-pcie5");
  const auto devices = ListGpuDevices();
  return ProfileOfCard(devices.empty() ? std::string() : devices.front().name);
}

// Everything that a run needs, in the order in which it is made.
struct Setup {
  ModelSpec spec;
  ModelLayout layout;
  Policy policy;
  std::string policy_words;  // of one that was searched for
  NamedProfile machine;      // for predictions
  int threads = 0;
  std::unique_ptr<HostStore> store;
  StepProgram load, train, settle;
  std::unique_ptr<Executor> executor;
  double seconds = 0;
  nlohmann::json seconds_by_phase = nlohmann::json::object();
};

GradientPlane PlaneOfSetup(const StepFlags& flags, const Setup& setup) {
  return PlaneOf(setup.policy, setup.spec.num_layers, flags.micro_batches);
}

absl::StatusOr<std::unique_ptr<HostStore>> MakeStore(const StepFlags& flags, const Setup& setup) {
  const GradientPlane plane = PlaneOfSetup(flags, setup);
  const OptimizerState state = StateOf(setup.policy.moment_type);
  const int64_t bytes =
      HostStore::BytesNeeded(setup.layout, state, plane) + setup.train.host_arena_bytes;
  const HostMemoryLimit limit = ReadHostMemoryLimit();
  if (bytes > limit.usable_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("host store and saved tensors need ", bytes,
                                                     " bytes, ", limit.source, " has ",
                                                     limit.usable_bytes));
  }
  return HostStore::Create(setup.layout, state, plane);
}

// Of a cap on the device's memory, tables, step inputs and the libraries' workspaces take a part.
int64_t ArenaBudget(const StepFlags& flags) {
  if (flags.device_cap_gib == 0) return 0;
  constexpr double kBesideArenaGib = 0.5;
  return std::max<int64_t>(1,
                           static_cast<int64_t>((flags.device_cap_gib - kBesideArenaGib) * kGib));
}

ProgramShape ShapeOf(const StepFlags& flags, const ModelSpec& spec) {
  return {.micro_batches = static_cast<int32_t>(flags.micro_batches),
          .tokens_per_micro_batch = flags.micro_batch_tokens,
          .element_bytes = 2,
          .kernel_scratch_bytes = CudaKernelScratchBytes(spec, flags.micro_batch_tokens),
          .arena_budget_bytes = ArenaBudget(flags)};
}

absl::Status MakePrograms(const StepFlags& flags, Setup& setup) {
  const ProgramShape shape = ShapeOf(flags, setup.spec);
  PENSTOCK_ASSIGN_OR_RETURN(setup.train,
                            BuildTrainProgram(setup.spec, setup.layout, setup.policy, shape));
  PENSTOCK_ASSIGN_OR_RETURN(setup.load,
                            BuildLoadProgram(setup.spec, setup.layout, setup.policy, shape));
  PENSTOCK_ASSIGN_OR_RETURN(setup.settle, BuildSettleProgram(setup.spec, setup.layout, setup.policy,
                                                             shape, SettleGoal::kReadStore));
  return absl::OkStatus();
}

// What needs neither memory nor a GPU. REQUIRES: the machine is known.
absl::Status PlanSetup(const StepFlags& flags, const Room& room, Setup& setup) {
  PENSTOCK_ASSIGN_OR_RETURN(setup.spec, SpecOf(flags));
  setup.layout = MakeLayout(setup.spec);
  PENSTOCK_ASSIGN_OR_RETURN(setup.policy, PolicyOf(flags, setup.spec));
  if (flags.search) {
    PENSTOCK_ASSIGN_OR_RETURN(
        PolicyCandidate best,
        SearchPolicy(flags, {setup.spec, setup.layout, ShapeOf(flags, setup.spec), setup.policy,
                             setup.machine.rates, room}));
    setup.policy = std::move(best.policy);
    setup.policy_words = std::move(best.words);
  }
  return MakePrograms(flags, setup);
}

absl::StatusOr<std::unique_ptr<Setup>> MakeSetup(const StepFlags& flags) {
  const Clock::time_point start = Clock::now();
  auto made = std::make_unique<Setup>();  // prepared programs do not move
  Setup& setup = *made;
  double phases_end = 0;
  const auto end_phase = [&](const char* phase) {
    setup.seconds = SecondsSince(start);
    setup.seconds_by_phase[phase] = setup.seconds - std::exchange(phases_end, setup.seconds);
  };
  const auto devices = ListGpuDevices();
  PENSTOCK_ASSIGN_OR_RETURN(setup.machine, MachineOf(flags));
  const int64_t device_bytes = devices.empty() ? 0 : devices.front().memory_bytes;
  PENSTOCK_RETURN_IF_ERROR(PlanSetup(
      flags, {device_bytes - kDeviceReserveBytes, ReadHostMemoryLimit().usable_bytes}, setup));
  end_phase("plan");
  setup.threads = flags.threads > 0 ? static_cast<int>(flags.threads)
                                    : static_cast<int>(std::thread::hardware_concurrency());
  PENSTOCK_ASSIGN_OR_RETURN(setup.store, MakeStore(flags, setup));
  {
    ThreadPool pool(setup.threads, PlacesForPool(setup.threads));
    setup.store->TouchPages(pool);
    end_phase("touch");
    InitializeWeights(setup.spec, /*seed=*/1, *setup.store, pool);
    end_phase("random_weights");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const PageLock page_lock, PageLockOf(flags));
  PENSTOCK_ASSIGN_OR_RETURN(setup.executor,
                            CreateCudaExecutor(setup.spec, *setup.store,
                                               {.tokens_per_micro_batch = flags.micro_batch_tokens,
                                                .max_positions = flags.sequence_length,
                                                .head_chunk_rows = flags.head_chunk_rows,
                                                .mlp_chunk_rows = flags.mlp_chunk_rows,
                                                .arena_bytes = setup.train.arena_bytes,
                                                .host_arena_bytes = setup.train.host_arena_bytes,
                                                .page_lock = page_lock,
                                                .threads = setup.threads}));
  end_phase("executor");  // locks the store's memory
  StepResult unused;
  for (const StepProgram* program : {&setup.load, &setup.settle, &setup.train}) {
    PENSTOCK_RETURN_IF_ERROR(setup.executor->Prepare(*program));
  }
  PENSTOCK_RETURN_IF_ERROR(setup.executor->Run(setup.load, {}, unused));
  end_phase("load");
  return made;
}

nlohmann::json ArenaJson(const StepProgram& program) {
  nlohmann::json gib = nlohmann::json::object();
  for (Arena arena : {Arena::kDevice, Arena::kHost}) {
    for (const auto& [buffer_class, bytes] : BytesByClass(program, arena)) {
      gib[absl::StrCat(arena == Arena::kHost ? "host " : "", BufferClassName(buffer_class))] =
          static_cast<double>(bytes) / kGib;
    }
  }
  return gib;
}

Simulation Predict(const StepFlags& flags, const Setup& setup) {
  return Simulate(setup.train,
                  OpSeconds(setup.train, setup.spec, setup.layout,
                            {.tokens_per_micro_batch = flags.micro_batch_tokens,
                             .mean_document_tokens = static_cast<double>(flags.sequence_length),
                             .head_chunk_rows = flags.head_chunk_rows,
                             .moment_type = setup.policy.moment_type},
                            setup.machine.rates),
                  ContentionOf(setup.machine.rates));
}

nlohmann::json PredictionJson(const StepFlags& flags, const Setup& setup) {
  const Simulation predicted = Predict(flags, setup);
  return {{"predicted_step_seconds", predicted.seconds},
          {"predicted_tokens_per_second",
           static_cast<double>(flags.micro_batches * flags.micro_batch_tokens) / predicted.seconds},
          {"predicted_busy_seconds_by_lane", ByLane(predicted.busy_seconds)},
          {"predicted_exposed_seconds_by_lane", ByLane(predicted.exposed_seconds)},
          {"predicted_longest_compute_gaps", LongestGaps(setup.train, predicted.timeline)},
          {"predicted_seconds_by_op", SecondsByOp(setup.train, predicted.timeline)}};
}

// What was chosen in words, or what was asked for.
nlohmann::json PolicyJson(const StepFlags& flags, const Setup& setup) {
  if (flags.search) return setup.policy_words;
  return {{"save", flags.save},
          {"save_place", flags.save_place},
          {"save_all_layers", flags.save_all_layers},
          {"host_attention_layers", flags.host_attention_layers},
          {"host_input_layers", flags.host_input_layers},
          {"update", flags.update},
          {"gradients", flags.gradients},
          {"moments", flags.moments},
          {"micro_batches_per_round", flags.round},
          {"micro_batches_in_first_round", flags.first_round},
          {"first_save", flags.first_save},
          {"first_save_all_layers", flags.first_save_all_layers},
          {"first_host_layers", flags.first_host_layers},
          {"slots", flags.slots},
          {"head_chunk_rows", flags.head_chunk_rows},
          {"mlp_chunk_rows", flags.mlp_chunk_rows},
          {"device_weights_layers", flags.device_weights},
          {"device_gradients_layers", flags.device_gradients},
          {"device_state_blocks", flags.device_state},
          {"device_master_blocks", flags.device_master}};
}

absl::StatusOr<nlohmann::json> PlanOnly(const StepFlags& flags) {
  Setup setup;
  PENSTOCK_ASSIGN_OR_RETURN(setup.machine, MachineOf(flags));
  PENSTOCK_RETURN_IF_ERROR(PlanSetup(
      flags,
      {setup.machine.device_memory_bytes - kDeviceReserveBytes, setup.machine.host_memory_bytes},
      setup));
  const GradientPlane plane = PlaneOfSetup(flags, setup);
  nlohmann::json report = PredictionJson(flags, setup);
  report.update(
      {{"machine", std::string(setup.machine.name)},
       {"device_memory_gib", static_cast<double>(setup.machine.device_memory_bytes) / kGib},
       {"geometry", flags.geometry},
       {"layers", setup.spec.num_layers},
       {"tokens_per_step", flags.micro_batches * flags.micro_batch_tokens},
       {"device_arena_gib", static_cast<double>(setup.train.arena_bytes) / kGib},
       {"device_gib_by_class", ArenaJson(setup.train)},
       {"host_store_gib",
        static_cast<double>(HostStore::BytesNeeded(setup.layout, OptimizerState::kFloat32, plane)) /
            kGib},
       {"host_arena_gib", static_cast<double>(setup.train.host_arena_bytes) / kGib},
       {"policy", PolicyJson(flags, setup)},
       {"ops", setup.train.ops.size()}});
  return report;
}

// Random weights know nothing: each of V tokens is as likely as any other.
absl::Status CheckFirstLoss(double loss, int64_t vocab) {
  const double expected = std::log(static_cast<double>(vocab));
  if (std::abs(loss - expected) < 0.1 * expected) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the first loss is ", loss, ", wanted about ", expected, "; the step is wrong"));
}

// Null for a card whose datasheet is not known.
nlohmann::json Mfu(double model_flops, const NamedProfile& machine) {
  if (machine.datasheet_flops == 0) return nullptr;
  return model_flops / machine.datasheet_flops;
}

nlohmann::json MachineJson() {
  const auto devices = ListGpuDevices();
  return {{"card", devices.empty() ? "none" : devices.front().name},
          {"device_memory_bytes", devices.empty() ? 0 : devices.front().memory_bytes},
          {"driver", DriverVersion()},
          {"toolkit", CudaToolkitName()},
          {"host_cores", std::thread::hardware_concurrency()}};
}

nlohmann::json MemoryJson(const Setup& setup, const StepFlags& flags, int64_t free_before,
                          int64_t free_after) {
  const double parameters = static_cast<double>(setup.layout.parameter_count);
  const int64_t host_bytes = setup.store->bytes() + setup.train.host_arena_bytes;
  return {{"parameters", setup.layout.parameter_count},
          {"device_cap_gib", flags.device_cap_gib},
          {"device_arena_gib", static_cast<double>(setup.train.arena_bytes) / kGib},
          {"device_peak_gib", static_cast<double>(free_before - free_after) / kGib},
          {"host_planned_bytes", host_bytes},
          {"host_peak_bytes", PeakHostBytes()},
          {"host_bytes_per_param", static_cast<double>(host_bytes) / parameters}};
}

absl::StatusOr<nlohmann::json> RunBenchmark(const StepFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t free_before, OpenGpu(/*uuid=*/""));
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Setup> made, MakeSetup(flags));
  const Setup& setup = *made;
  const Batch batch(flags, setup.spec.vocab_size);
  PENSTOCK_ASSIGN_OR_RETURN(Measured measured,
                            RunSteps(flags, setup.train, *setup.executor, batch));
  PENSTOCK_RETURN_IF_ERROR(CheckFirstLoss(measured.first_loss, setup.spec.vocab_size));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t free_after, OpenGpu(/*uuid=*/""));
  nlohmann::json report = MemoryJson(setup, flags, free_before, free_after);
  std::sort(measured.seconds.begin(), measured.seconds.end());
  const double step_seconds = measured.seconds[measured.seconds.size() / 2];
  const int64_t tokens = flags.micro_batches * flags.micro_batch_tokens;
  const double rate = static_cast<double>(tokens) / step_seconds;
  const double flops = TrainFlopsPerToken(setup.spec, flags.sequence_length);
  const std::vector<SimulatedOp> timeline = InSeconds(setup.executor->timeline());
  report.update(MachineJson());
  report.update(PredictionJson(flags, setup));
  report.update(
      {{"geometry", flags.geometry},
       {"layers", setup.spec.num_layers},
       {"tokens_per_step", tokens},
       {"micro_batches", flags.micro_batches},
       {"sequence_length", flags.sequence_length},
       {"real_tokens_per_second", rate},
       {"step_seconds", step_seconds},
       {"fastest_step_seconds", measured.seconds.front()},
       {"slowest_step_seconds", measured.seconds.back()},
       {"model_tflops", rate * flops * 1e-12},
       {"mfu_datasheet", Mfu(rate * flops, setup.machine)},
       {"busy_seconds_by_lane", ByLane(measured.last.busy_seconds)},
       {"exposed_seconds_by_lane", ByLane(ExposedSeconds(setup.train, timeline))},
       {"longest_compute_gaps", LongestGaps(setup.train, timeline)},
       {"seconds_by_op", SecondsByOp(setup.train, timeline)},
       {"link_gb_per_second", LinkGigabytesPerSecond(setup.train, setup.layout, timeline)},
       {"host_gb_per_second",
        HostGigabytesPerSecond(setup.train, setup.layout, setup.policy.moment_type, timeline)},
       {"setup_seconds", setup.seconds},
       {"setup_seconds_by_phase", setup.seconds_by_phase},
       {"policy", PolicyJson(flags, setup)},
       {"first_loss", measured.first_loss},
       {"last_loss", measured.last.loss_sum / static_cast<double>(measured.last.labelled_tokens)},
       {"grad_norm", measured.last.decision.grad_norm},
       {"host_threads", setup.threads},
       {"commit", flags.commit},
       {"date", flags.date}});
  return report;
}

int Main(int argc, char** argv) {
  const absl::StatusOr<StepFlags> flags = ParseStepFlags(argc, argv);
  const auto run = [](const StepFlags& parsed) {
    return parsed.plan_only ? PlanOnly(parsed) : RunBenchmark(parsed);
  };
  const absl::StatusOr<nlohmann::json> report =
      flags.ok() ? run(*flags) : absl::StatusOr<nlohmann::json>(flags.status());
  if (report.ok()) {
    std::printf("%s\n", report->dump(2).c_str());
    return 0;
  }
  std::fprintf(stderr, "penstock_bench: %s\n", std::string(report.status().message()).c_str());
  return 1;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main(argc, argv); }
