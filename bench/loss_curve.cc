// penstock_loss_curve: trains a model directory on a token file, in the file's order, and prints
// one JSON object a line: the loss and gradient norm of every step, and between steps the loss on
// another token file. No packing, no shuffling: any other program can run the same batches
// (tests/reference/fp32_loss_curve.py does, in PyTorch).
//
//   penstock_loss_curve --model=DIR --tokens=FILE --evaluation=FILE --steps=1000
//
// Token files are as bench/token_rows.h says. Step s takes rows s * R .. (s + 1) * R, with R rows
// of sequence_length in its micro-batches. The rate warms up linearly and falls along a cosine to
// a tenth of its peak. --device=cuda trains in bf16 on the first GPU, --device=cpu in fp32.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/step_flags.h"
#include "bench/token_rows.h"
#include "engine/base/cpu_places.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/exec/executor.h"
#include "engine/exec/gpu_devices.h"
#include "engine/nn/kernel_scratch.h"
#include "engine/plan/train_program.h"
#include "engine/train/import.h"
#include "engine/train/model_directory.h"
#include "engine/train/schedule.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

struct CurveFlags {
  StepFlags step;
  std::string model, tokens, evaluation;
  std::string device = "cuda";
  int64_t evaluate_every = 50;  // steps; also before the first and after the last
  int64_t warmup_steps = 100;
  double learning_rate = 1e-4, weight_decay = 0.1;

  int64_t threads() const {
    return step.threads > 0 ? step.threads : std::thread::hardware_concurrency();
  }
  int64_t rows_per_micro_batch() const { return step.micro_batch_tokens / step.sequence_length; }
};

absl::StatusOr<CurveFlags> ParseCurveFlags(int argc, char** argv) {
  CurveFlags flags;
  FlagTables tables = TablesOf(flags.step);
  tables.texts.erase("geometry");  // the model directory says it
  tables.numbers.erase("layers");  // likewise
  tables.texts.insert({{"model", &flags.model},
                       {"tokens", &flags.tokens},
                       {"evaluation", &flags.evaluation},
                       {"device", &flags.device}});
  tables.numbers.insert(
      {{"evaluate_every", &flags.evaluate_every}, {"warmup_steps", &flags.warmup_steps}});
  tables.reals.insert(
      {{"learning_rate", &flags.learning_rate}, {"weight_decay", &flags.weight_decay}});
  tables.switches.clear();
  PENSTOCK_RETURN_IF_ERROR(ParseFlags(argc, argv, tables));
  PENSTOCK_RETURN_IF_ERROR(CheckStepFlags(flags.step));
  if (flags.model.empty() || flags.tokens.empty() || flags.evaluation.empty()) {
    return absl::InvalidArgumentError("wanted --model=, --tokens= and --evaluation=");
  }
  if (flags.device != "cuda" && flags.device != "cpu") {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", flags.device, ": wanted cuda or cpu"));
  }
  if (flags.evaluate_every < 1 || flags.step.sequence_length < 2) {
    return absl::InvalidArgumentError(
        "evaluate_every must be at least 1 and sequence_length at least 2");
  }
  return flags;
}

// Everything that a run needs, in the order in which it is made.
struct Run {
  std::unique_ptr<ModelDirectory> model;
  std::unique_ptr<HostStore> store;
  StepProgram load, train, settle, evaluate;
  std::unique_ptr<Executor> executor;
};

absl::Status LoadModel(const CurveFlags& flags, const Policy& policy, Run& run) {
  PENSTOCK_ASSIGN_OR_RETURN(
      run.store,
      HostStore::Create(run.model->layout(), OptimizerState::kFloat32,
                        PlaneOf(policy, run.model->spec().num_layers, flags.step.micro_batches)));
  const int threads = static_cast<int>(flags.threads());
  ThreadPool pool(threads, PlacesForPool(threads));
  run.store->TouchPages(pool);
  return ImportWeights(*run.model, *run.store, pool,
                       [](int64_t, int64_t) { return absl::OkStatus(); });
}

absl::Status MakePrograms(const CurveFlags& flags, const Policy& policy, Run& run) {
  const ModelSpec& spec = run.model->spec();
  const ModelLayout& layout = run.model->layout();
  const bool cuda = flags.device == "cuda";
  ProgramShape shape{
      .micro_batches = static_cast<int32_t>(flags.step.micro_batches),
      .tokens_per_micro_batch = flags.step.micro_batch_tokens,
      .element_bytes = cuda ? 2 : 4,
      .kernel_scratch_bytes = cuda ? CudaKernelScratchBytes(spec, flags.step.micro_batch_tokens)
                                   : CpuKernelScratchBytes(static_cast<int>(flags.threads()))};
  PENSTOCK_ASSIGN_OR_RETURN(run.train, BuildTrainProgram(spec, layout, policy, shape));
  PENSTOCK_ASSIGN_OR_RETURN(run.load, BuildLoadProgram(spec, layout, policy, shape));
  PENSTOCK_ASSIGN_OR_RETURN(run.settle,
                            BuildSettleProgram(spec, layout, policy, shape, SettleGoal::kEvaluate));
  shape.micro_batches = 1;
  PENSTOCK_ASSIGN_OR_RETURN(run.evaluate, BuildEvaluationProgram(spec, layout, policy, shape));
  return absl::OkStatus();
}

absl::Status MakeExecutor(const CurveFlags& flags, Run& run) {
  int64_t arena_bytes = 0, host_arena_bytes = 0;
  const auto programs = {&run.load, &run.train, &run.settle, &run.evaluate};
  for (const StepProgram* program : programs) {
    arena_bytes = std::max(arena_bytes, program->arena_bytes);
    host_arena_bytes = std::max(host_arena_bytes, program->host_arena_bytes);
  }
  const ExecutorOptions options{.tokens_per_micro_batch = flags.step.micro_batch_tokens,
                                .max_positions = flags.step.sequence_length,
                                .head_chunk_rows = flags.step.head_chunk_rows,
                                .mlp_chunk_rows = flags.step.mlp_chunk_rows,
                                .arena_bytes = arena_bytes,
                                .host_arena_bytes = host_arena_bytes,
                                .threads = static_cast<int>(flags.threads())};
  const auto create = flags.device == "cuda" ? CreateCudaExecutor : CreateCpuExecutor;
  PENSTOCK_ASSIGN_OR_RETURN(run.executor, create(run.model->spec(), *run.store, options));
  for (const StepProgram* program : programs) {
    PENSTOCK_RETURN_IF_ERROR(run.executor->Prepare(*program));
  }
  StepResult unused;
  return run.executor->Run(run.load, {}, unused);
}

absl::StatusOr<std::unique_ptr<Run>> MakeRun(const CurveFlags& flags) {
  auto run = std::make_unique<Run>();  // prepared programs do not move
  if (flags.device == "cuda") PENSTOCK_RETURN_IF_ERROR(OpenGpu(/*uuid=*/"").status());
  PENSTOCK_ASSIGN_OR_RETURN(run->model, ModelDirectory::Open(flags.model));
  PENSTOCK_ASSIGN_OR_RETURN(const Policy policy, PolicyOf(flags.step, run->model->spec()));
  PENSTOCK_RETURN_IF_ERROR(LoadModel(flags, policy, *run));
  PENSTOCK_RETURN_IF_ERROR(MakePrograms(flags, policy, *run));
  PENSTOCK_RETURN_IF_ERROR(MakeExecutor(flags, *run));
  return run;
}

void PrintLine(const nlohmann::json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

// Mean loss over whole micro-batches of `rows`.
absl::Status Evaluate(const CurveFlags& flags, const TokenRows& rows, int64_t step, Run& run) {
  StepResult result;
  PENSTOCK_RETURN_IF_ERROR(run.executor->Run(run.settle, {}, result));
  const int64_t size = flags.rows_per_micro_batch();
  double loss_sum = 0;
  int64_t labelled = 0;
  for (int64_t row = 0; row + size <= rows.rows(); row += size) {
    const MicroBatchView view = rows.View(row, size);
    PENSTOCK_RETURN_IF_ERROR(run.executor->Run(
        run.evaluate, {.micro_batches = {&view, 1}, .labelled_tokens = rows.LabelledTokens(size)},
        result));
    loss_sum += result.loss_sum;
    labelled += result.labelled_tokens;
  }
  PrintLine({{"step", step},
             {"evaluation_loss", loss_sum / static_cast<double>(labelled)},
             {"labelled_tokens", labelled}});
  return absl::OkStatus();
}

absl::Status Step(const CurveFlags& flags, const TokenRows& rows, int64_t step, Run& run) {
  const int64_t size = flags.rows_per_micro_batch();
  std::vector<MicroBatchView> views;
  for (int64_t i = 0; i < flags.step.micro_batches; ++i) {
    views.push_back(rows.View((step * flags.step.micro_batches + i) * size, size));
  }
  const ScheduleConfig schedule{
      .shape = ScheduleShape::kCosine, .warmup_steps = flags.warmup_steps, .final_fraction = 0.1};
  const double rate = LearningRate(schedule, flags.learning_rate, flags.step.steps, step);
  StepResult result;
  PENSTOCK_RETURN_IF_ERROR(
      run.executor->Run(run.train,
                        {.micro_batches = views,
                         .labelled_tokens = rows.LabelledTokens(size * flags.step.micro_batches),
                         .optimizer = {.learning_rate = rate,
                                       .beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .epsilon = 1e-8,
                                       .weight_decay = flags.weight_decay,
                                       .max_grad_norm = 1}},
                        result));
  PrintLine({{"step", step + 1},
             {"loss", result.loss_sum / static_cast<double>(result.labelled_tokens)},
             {"grad_norm", result.decision.grad_norm},
             {"learning_rate", rate}});
  return absl::OkStatus();
}

absl::Status CheckRows(const CurveFlags& flags, const TokenRows& rows, const TokenRows& held_out) {
  const int64_t micro_batch = flags.rows_per_micro_batch();
  const int64_t step = flags.step.micro_batches * micro_batch;
  if (rows.rows() / step >= flags.step.steps && held_out.rows() >= micro_batch) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(flags.tokens, " has ", rows.rows(), " rows of ", flags.step.sequence_length,
                   ", a step takes ", step, " and there are ", flags.step.steps, " steps; ",
                   flags.evaluation, " has ", held_out.rows(), ", a micro-batch takes ",
                   micro_batch, "; lower steps or add text"));
}

absl::Status RunCurve(const CurveFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Run> run, MakeRun(flags));
  const int64_t vocab = run->model->spec().vocab_size;
  const int64_t length = flags.step.sequence_length;
  PENSTOCK_ASSIGN_OR_RETURN(const TokenRows rows, TokenRows::Read(flags.tokens, length, vocab));
  PENSTOCK_ASSIGN_OR_RETURN(const TokenRows held_out,
                            TokenRows::Read(flags.evaluation, length, vocab));
  PENSTOCK_RETURN_IF_ERROR(CheckRows(flags, rows, held_out));
  PENSTOCK_RETURN_IF_ERROR(Evaluate(flags, held_out, 0, *run));
  for (int64_t step = 0; step < flags.step.steps; ++step) {
    PENSTOCK_RETURN_IF_ERROR(Step(flags, rows, step, *run));
    const bool last = step + 1 == flags.step.steps;
    if (last || (step + 1) % flags.evaluate_every == 0) {
      PENSTOCK_RETURN_IF_ERROR(Evaluate(flags, held_out, step + 1, *run));
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const absl::StatusOr<CurveFlags> flags = ParseCurveFlags(argc, argv);
  const absl::Status status = flags.ok() ? RunCurve(*flags) : flags.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "penstock_loss_curve: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main(argc, argv); }
