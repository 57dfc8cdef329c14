// penstock_bench: steps of a named geometry with random weights and random tokens on the current
// GPU; one JSON object on standard output.
//
//   penstock_bench --geometry=qwen2.5-1.5b --micro_batches=4 --micro_batch_tokens=16384
//
// Every token is real: sequences fill the micro-batches, no padding. The first step pays for
// searches and first touches and is not counted; step_seconds is the median of the others, of
// which each includes the optimizer. The policy is what the flags say, for no planner is asked.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/geometry.h"
#include "engine/base/labels.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/exec/executor.h"
#include "engine/exec/gpu_devices.h"
#include "engine/memory/host_memory.h"
#include "engine/nn/kernel_scratch.h"
#include "engine/plan/train_program.h"
#include "engine/train/random_init.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kH100Bf16Flops = 989e12;  // datasheet, dense

struct Flags {
  std::string geometry = "qwen2.5-0.5b", save = "input", commit = "unknown";
  int64_t micro_batches = 1, micro_batch_tokens = 16384, sequence_length = 1024, steps = 4;
  int64_t slots = 2, threads = 0, head_chunk_rows = 2048;
};

absl::Status ParseFlags(int argc, char** argv, Flags& flags) {
  const std::map<std::string, std::string*> texts = {
      {"geometry", &flags.geometry}, {"save", &flags.save}, {"commit", &flags.commit}};
  const std::map<std::string, int64_t*> numbers = {
      {"micro_batches", &flags.micro_batches},
      {"micro_batch_tokens", &flags.micro_batch_tokens},
      {"sequence_length", &flags.sequence_length},
      {"steps", &flags.steps},
      {"slots", &flags.slots},
      {"threads", &flags.threads},
      {"head_chunk_rows", &flags.head_chunk_rows}};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    const std::string name = absl::StartsWith(word, "--") && equals != std::string::npos
                                 ? word.substr(2, equals - 2)
                                 : std::string();
    const std::string value = name.empty() ? std::string() : word.substr(equals + 1);
    if (const auto text = texts.find(name); text != texts.end()) {
      *text->second = value;
    } else if (const auto number = numbers.find(name);
               number == numbers.end() || !absl::SimpleAtoi(value, number->second) ||
               *number->second < 1 || *number->second > (int64_t{1} << 24)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cannot use ", word, ": wanted --name=value, numbers from 1 to ", int64_t{1} << 24));
    }
  }
  if (flags.micro_batch_tokens % flags.sequence_length != 0 || flags.steps < 2) {
    return absl::InvalidArgumentError(
        "micro_batch_tokens must be a multiple of sequence_length, and steps at least 2");
  }
  return absl::OkStatus();
}

absl::StatusOr<SaveLevel> ParseSaveLevel(const std::string& name) {
  if (name == "all") return SaveLevel::kAll;
  if (name == "attention") return SaveLevel::kAttention;
  if (name == "input") return SaveLevel::kInput;
  return absl::InvalidArgumentError(
      absl::StrCat("--save=", name, ": wanted all, attention or input"));
}

// One micro-batch; all of a step's are views of it, since their contents do not matter.
struct Batch {
  std::vector<int32_t> ids, positions, labels, starts;

  Batch(const Flags& flags, int64_t vocab) : starts{0} {
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

nlohmann::json ByLane(const std::array<double, kLaneCount>& seconds) {
  nlohmann::json object;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    object[LaneName(static_cast<Lane>(lane))] = seconds[lane];
  }
  return object;
}

struct Measured {
  std::vector<double> seconds;  // by step, the first left out
  StepResult last;
  double first_loss = 0;
};

absl::StatusOr<Measured> RunSteps(const Flags& flags, const StepProgram& program,
                                  Executor& executor, const Batch& batch) {
  const std::vector<MicroBatchView> views(flags.micro_batches, batch.view());
  const StepInput input{.micro_batches = views,
                        .labelled_tokens = flags.micro_batches * batch.labelled(),
                        .optimizer = {.learning_rate = 1e-5,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .epsilon = 1e-8,
                                      .weight_decay = 0.1,
                                      .max_grad_norm = 1}};
  Measured measured;
  for (int64_t step = 0; step < flags.steps; ++step) {
    const Clock::time_point start = Clock::now();
    PENSTOCK_RETURN_IF_ERROR(executor.Run(program, input, measured.last));
    if (step == 0) {
      measured.first_loss =
          measured.last.loss_sum / static_cast<double>(measured.last.labelled_tokens);
    } else {
      measured.seconds.push_back(SecondsSince(start));
    }
  }
  return measured;
}

// A time in which the compute lane did nothing.
struct Gap {
  int64_t start_ns, end_ns;
  std::string until;  // the compute op that ended it, or the end of the step
};

// The gaps of the last step, from its start to the end of its last op.
std::vector<Gap> ComputeGaps(const StepProgram& program, std::span<const OpTime> timeline) {
  std::vector<Gap> gaps;
  int64_t busy_until = 0, end = 0;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    end = std::max(end, timeline[i].end_ns);
    if (program.ops[i].lane != Lane::kCompute) continue;
    if (timeline[i].start_ns > busy_until) {
      gaps.push_back(
          {busy_until, timeline[i].start_ns, OpText(program, OpId{static_cast<int32_t>(i)})});
    }
    busy_until = timeline[i].end_ns;
  }
  if (end > busy_until) gaps.push_back({busy_until, end, "end of the step"});
  return gaps;
}

nlohmann::json LongestGaps(std::vector<Gap> gaps) {
  constexpr size_t kShown = 5;
  std::sort(gaps.begin(), gaps.end(), [](const Gap& a, const Gap& b) {
    return a.end_ns - a.start_ns > b.end_ns - b.start_ns;
  });
  nlohmann::json shown = nlohmann::json::array();
  for (size_t i = 0; i < std::min(kShown, gaps.size()); ++i) {
    shown.push_back({{"seconds", static_cast<double>(gaps[i].end_ns - gaps[i].start_ns) * 1e-9},
                     {"until", gaps[i].until}});
  }
  return shown;
}

// By lane: how long it was busy while the compute lane was not. What "compute" names is the
// length of its gaps.
nlohmann::json ExposedSeconds(const StepProgram& program, std::span<const OpTime> timeline) {
  std::array<double, kLaneCount> seconds = {};
  for (const Gap& gap : ComputeGaps(program, timeline)) {
    seconds[static_cast<int>(Lane::kCompute)] +=
        static_cast<double>(gap.end_ns - gap.start_ns) * 1e-9;
    for (size_t i = 0; i < program.ops.size(); ++i) {
      const int64_t begin = std::max(gap.start_ns, timeline[i].start_ns);
      const int64_t end = std::min(gap.end_ns, timeline[i].end_ns);
      if (end > begin) {
        seconds[static_cast<int>(program.ops[i].lane)] += static_cast<double>(end - begin) * 1e-9;
      }
    }
  }
  return ByLane(seconds);
}

// Seconds by kind of op.
std::map<std::string, double> SecondsByOp(const StepProgram& program, const Executor& executor) {
  std::map<std::string, double> seconds;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const OpTime& time = executor.timeline()[i];
    // "%7 compute forward_block ..."
    const std::vector<std::string> words =
        absl::StrSplit(OpText(program, OpId{static_cast<int32_t>(i)}), ' ');
    seconds[words.at(2)] += static_cast<double>(time.end_ns - time.start_ns) * 1e-9;
  }
  return seconds;
}

absl::StatusOr<nlohmann::json> RunBenchmark(const Flags& flags) {
  const Clock::time_point start = Clock::now();
  PENSTOCK_ASSIGN_OR_RETURN(const ModelSpec spec, FindGeometry(flags.geometry));
  PENSTOCK_ASSIGN_OR_RETURN(const SaveLevel level, ParseSaveLevel(flags.save));
  const ModelLayout layout = MakeLayout(spec);
  const int threads = flags.threads > 0 ? static_cast<int>(flags.threads)
                                        : static_cast<int>(std::thread::hardware_concurrency());
  const int64_t bytes =
      HostStore::BytesNeeded(layout, OptimizerState::kFloat32, GradientPlane::kFloat32);
  const HostMemoryLimit limit = ReadHostMemoryLimit();
  if (bytes > limit.usable_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the host store needs ", bytes, " bytes, ",
                                                     limit.source, " has ", limit.usable_bytes));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const auto store, HostStore::Create(layout, OptimizerState::kFloat32,
                                                                GradientPlane::kFloat32));
  {
    ThreadPool pool(threads);
    InitializeWeights(spec, /*seed=*/1, *store, pool);
  }
  const Policy policy{.saving = {.level = level},
                      .decoder_slots = static_cast<int>(flags.slots),
                      .head_chunk_rows = flags.head_chunk_rows};
  PENSTOCK_ASSIGN_OR_RETURN(
      const StepProgram program,
      BuildTrainProgram(
          spec, layout, policy,
          {.micro_batches = static_cast<int32_t>(flags.micro_batches),
           .tokens_per_micro_batch = flags.micro_batch_tokens,
           .element_bytes = 2,
           .kernel_scratch_bytes = CudaKernelScratchBytes(spec, flags.micro_batch_tokens)}));
  PENSTOCK_ASSIGN_OR_RETURN(const auto executor,
                            CreateCudaExecutor(spec, *store,
                                               {.tokens_per_micro_batch = flags.micro_batch_tokens,
                                                .max_positions = flags.sequence_length,
                                                .head_chunk_rows = flags.head_chunk_rows,
                                                .arena_bytes = program.arena_bytes,
                                                .threads = threads}));
  PENSTOCK_RETURN_IF_ERROR(executor->Prepare(program));
  const double setup_seconds = SecondsSince(start);
  const Batch batch(flags, spec.vocab_size);
  PENSTOCK_ASSIGN_OR_RETURN(Measured measured, RunSteps(flags, program, *executor, batch));
  std::sort(measured.seconds.begin(), measured.seconds.end());
  const double step_seconds = measured.seconds[measured.seconds.size() / 2];
  const int64_t tokens = flags.micro_batches * flags.micro_batch_tokens;
  const double rate = static_cast<double>(tokens) / step_seconds;
  const double flops = TrainFlopsPerToken(spec, flags.sequence_length);
  const auto devices = ListGpuDevices();
  return nlohmann::json{
      {"geometry", flags.geometry},
      {"parameters", layout.parameter_count},
      {"tokens_per_step", tokens},
      {"micro_batches", flags.micro_batches},
      {"sequence_length", flags.sequence_length},
      {"real_tokens_per_second", rate},
      {"step_seconds", step_seconds},
      {"fastest_step_seconds", measured.seconds.front()},
      {"slowest_step_seconds", measured.seconds.back()},
      {"model_tflops", rate * flops * 1e-12},
      {"mfu_datasheet", rate * flops / kH100Bf16Flops},
      {"busy_seconds_by_lane", ByLane(measured.last.busy_seconds)},
      {"exposed_seconds_by_lane", ExposedSeconds(program, executor->timeline())},
      {"longest_compute_gaps", LongestGaps(ComputeGaps(program, executor->timeline()))},
      {"seconds_by_op", SecondsByOp(program, *executor)},
      {"setup_seconds", setup_seconds},
      {"device_arena_bytes", program.arena_bytes},
      {"host_store_bytes", bytes},
      {"host_bytes_per_param",
       static_cast<double>(bytes) / static_cast<double>(layout.parameter_count)},
      {"policy", absl::StrCat("layer-major, save ", flags.save, ", ", flags.slots, " slots, ",
                              flags.head_chunk_rows, " logit rows")},
      {"first_loss", measured.first_loss},
      {"last_loss", measured.last.loss_sum / static_cast<double>(measured.last.labelled_tokens)},
      {"grad_norm", measured.last.decision.grad_norm},
      {"card", devices.empty() ? "none" : devices.front().name},
      {"toolkit", CudaToolkitName()},
      {"host_threads", threads},
      {"commit", flags.commit}};
}

int Main(int argc, char** argv) {
  Flags flags;
  absl::Status status = ParseFlags(argc, argv, flags);
  if (status.ok()) {
    const absl::StatusOr<nlohmann::json> report = RunBenchmark(flags);
    if (report.ok()) {
      std::printf("%s\n", report->dump(2).c_str());
      return 0;
    }
    status = report.status();
  }
  std::fprintf(stderr, "penstock_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main(argc, argv); }
