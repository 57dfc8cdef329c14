#include "engine/train/training_plan.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/memory/host_store.h"
#include "engine/train/model_input.h"
#include "engine/train/policy_choice.h"
#include "engine/train/schedule.h"
#include "engine/train/usable_cores.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/train/train_testing.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using testing::ByteModelConfig;
using ::testing::HasSubstr;
using testing::RecordingObserver;
using testing::SomeText;
using testing::TempDir;
using testing::TinyTrainConfig;
using testing::WriteFileOrDie;

TEST(TrainingPlanTest, NamesThePeakOfEveryPhaseAndTheClasses) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(1000));
  TrainConfig config = TinyTrainConfig(dir.Path("run"), dir.Path("data.txt"));
  config.batch.tokens_per_step = config.batch.micro_batch_tokens = 16384;
  const auto plan = PlanTraining(config);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::set<Phase> phases;
  std::vector<std::string> parts;
  for (const MemoryPlanSummary::PhaseMemory& part : plan->phases) {
    phases.insert(part.phase);
    parts.push_back(part.name);
    EXPECT_GT(part.host_bytes, 0);
    EXPECT_LE(part.host_bytes, plan->host_peak_bytes);
    int64_t sum = 0;
    for (const auto& entry : part.classes) sum += entry.bytes;
    EXPECT_EQ(sum, part.host_bytes) << part.name;
    EXPECT_EQ(part.device_bytes, 0);
  }
  EXPECT_EQ(phases.size(), 6u);
  EXPECT_THAT(parts, ::testing::ElementsAre("data", "import", "resume", "first step", "step",
                                            "evaluation", "checkpoint", "export"));
  std::string names;
  for (const auto& entry : plan->classes) names += entry.name + ";";
  for (const char* expected : {"master weights", "optimizer state", "host gradients",
                               "logits chunk", "activations", "saved tensors"}) {
    EXPECT_THAT(names, HasSubstr(expected));
  }
}

TEST(TrainingPlanTest, AMachineThatIsPlannedForBringsItsHostMemoryAndRates) {
  EXPECT_EQ(FindMachine("h200-1.5tb")->host_memory_bytes, int64_t{1500} << 30);
  EXPECT_THAT(std::string(FindMachine("h300").status().message()), HasSubstr("h200-1.5tb"));
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(1000));
  TrainConfig config = TinyTrainConfig(dir.Path("run"), dir.Path("data.txt"));
  config.device = {.backend = ComputeBackend::kCuda,
                   .card = "H200",
                   .planned_machine = "h200-1.5tb",
                   .memory_bytes = int64_t{100} << 30};
  EXPECT_EQ(UsableHostMemory(config).usable_bytes, int64_t{1500} << 30);
  EXPECT_EQ(UsableHostMemory(config).source, "h200-1.5tb");
  const auto plan = PlanTraining(config);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->prediction.machine, "h200-1.5tb (from datasheets)");
}

// A model with layers that outweigh the rest, on a GPU with so much for a job.
TrainConfig GpuConfig(const TempDir& dir, int64_t memory_bytes) {
  TrainConfig config = TinyTrainConfig(dir.Path("run"), dir.Path("data.txt"));
  nlohmann::json model = ByteModelConfig();
  model["hidden_size"] = 256;
  model["intermediate_size"] = 1024;
  model["num_hidden_layers"] = 8;
  model["num_attention_heads"] = 4;
  config.model = ModelFromConfig{model.dump()};
  config.batch = {.sequence_length = 256, .tokens_per_step = 4096, .micro_batch_tokens = 1024};
  config.device = {.backend = ComputeBackend::kCuda, .memory_bytes = memory_bytes};
  return config;
}

TEST(TrainingPlanTest, AGpuWithLessMemoryGetsThePolicyThatFitsAndNoOther) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(1000));
  std::vector<std::string> policies;
  int64_t memory = int64_t{64} << 30;
  while (true) {
    const auto plan = PlanTraining(GpuConfig(dir, memory));
    if (!plan.ok()) {
      EXPECT_EQ(ReasonOf(plan.status()), reason::kDeviceMemoryInsufficient) << plan.status();
      break;
    }
    policies.push_back(plan->policy);
    EXPECT_LE(plan->device_bytes, memory);
    // What was admitted is what runs: exactly these bytes give the same policy.
    const auto again = PlanTraining(GpuConfig(dir, plan->device_bytes));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->policy, plan->policy);
    EXPECT_EQ(again->device_bytes, plan->device_bytes);
    memory = plan->device_bytes * 15 / 16;
  }
  EXPECT_THAT(policies.front(),
              AllOf(HasSubstr("weights resident"), HasSubstr("everything saved")));
  EXPECT_THAT(policies.back(), AllOf(HasSubstr("weights streamed"), HasSubstr("inputs saved")));
  EXPECT_GE(policies.size(), 4u);
  EXPECT_EQ(std::set<std::string>(policies.begin(), policies.end()).size(), policies.size());
}

// BC-15: what no kernel can do is known before anything runs.
TEST(TrainingPlanTest, Bc15AShapeThatTheGpuHasNoKernelForIsRefused) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(1000));
  TrainConfig config = GpuConfig(dir, int64_t{64} << 30);
  nlohmann::json model = nlohmann::json::parse(std::get<ModelFromConfig>(config.model).config_json);
  for (const auto& [head_dim, fits] :
       {std::pair{128, true}, std::pair{256, true}, std::pair{264, false}}) {
    model["head_dim"] = head_dim;
    config.model = ModelFromConfig{model.dump()};
    const absl::Status status = PlanTraining(config).status();
    EXPECT_EQ(status.ok(), fits) << status;
    if (fits) continue;
    EXPECT_EQ(ReasonOf(status), reason::kFeatureUnsupported);
    EXPECT_THAT(std::string(status.message()), HasSubstr("head_dim is 264"));
  }
  config.device = {};
  EXPECT_TRUE(PlanTraining(config).ok());
}

TEST(TrainingPlanTest, OnAGpuTheArenaIsNotTheHosts) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(1000));
  const auto plan = PlanTraining(GpuConfig(dir, int64_t{64} << 30));
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::string host, device;
  int64_t device_bytes = 0;
  for (const auto& entry : plan->classes) host += entry.name + ";";
  for (const auto& entry : plan->device_classes) {
    device += entry.name + ";";
    device_bytes += entry.bytes;
  }
  EXPECT_THAT(host, ::testing::Not(HasSubstr("activations")));
  for (const char* expected : {"weight slots", "activations", "saved tensors", "rotary table"}) {
    EXPECT_THAT(device, HasSubstr(expected));
  }
  // Buffers that share bytes count each: a first round that is larger lies where sums come later.
  EXPECT_GE(static_cast<double>(device_bytes), 0.98 * static_cast<double>(plan->device_bytes));
  // BC-03: exactly the store is registered, 14 bytes a parameter; a block begins on a huge page.
  constexpr double kHugePage = 2 << 20;
  const double store_bytes = 14.0 * static_cast<double>(plan->parameters);
  EXPECT_GE(static_cast<double>(plan->locked_bytes), store_bytes);
  EXPECT_LE(static_cast<double>(plan->locked_bytes), 1.02 * store_bytes + kHugePage * (8 + 2));
  TrainConfig on_cpu = GpuConfig(dir, 0);
  on_cpu.device = {};
  const auto cpu = PlanTraining(on_cpu);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_EQ(cpu->device_bytes, 0);
  EXPECT_EQ(cpu->locked_bytes, 0);
}

TEST(TrainingPlanTest, ADeviceTooSmallIsRefusedWithTheMicroBatchThatFits) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(1000));
  TrainConfig one_row = GpuConfig(dir, int64_t{64} << 30);
  one_row.batch.micro_batch_tokens = 256;
  one_row.batch.save_level = SaveLevel::kInput;
  int64_t least = PlanTraining(one_row)->device_bytes;
  while (true) {  // down to the last policy
    one_row.device.memory_bytes = least - 1;
    const auto plan = PlanTraining(one_row);
    if (!plan.ok()) break;
    least = plan->device_bytes;
  }
  const absl::Status status = PlanTraining(GpuConfig(dir, least)).status();
  EXPECT_EQ(ReasonOf(status), reason::kDeviceMemoryInsufficient);
  EXPECT_EQ(MetadataOf(status)["usable_bytes"].empty(), false);
  EXPECT_GT(std::stoll(MetadataOf(status)["needed_bytes"]), least);
  EXPECT_EQ(MetadataOf(status)["field"], "batch.micro_batch_tokens");
  EXPECT_THAT(std::string(status.message()), HasSubstr("fits with batch.micro_batch_tokens: 256"));
  // A cap that cannot hold one block.
  EXPECT_THAT(std::string(PlanTraining(GpuConfig(dir, 1 << 20)).status().message()),
              AllOf(HasSubstr("no micro-batch fits (one row needs "), HasSubstr("for CUDA")));
}

TEST(TrainingPlanTest, SavesLessWhereHostMemoryIsShortAndRefusesWhatDoesNotFitEvenSo) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(1000));
  TrainConfig config = TinyTrainConfig(dir.Path("run"), dir.Path("data.txt"));
  config.batch = {.sequence_length = 1024, .tokens_per_step = 65536, .micro_batch_tokens = 4096};
  const auto full = PlanTraining(config);
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_THAT(full->policy, HasSubstr("everything saved"));
  config.host_memory_bytes = full->host_peak_bytes;
  EXPECT_EQ(PlanTraining(config)->policy, full->policy);
  config.host_memory_bytes = full->host_peak_bytes - 1;
  const auto less = PlanTraining(config);
  ASSERT_TRUE(less.ok()) << less.status();
  EXPECT_LT(less->host_peak_bytes, full->host_peak_bytes);
  EXPECT_NE(less->policy, full->policy);
  EXPECT_EQ(less->rounding, full->rounding);
  EXPECT_GT(less->prediction.step_seconds, full->prediction.step_seconds);

  config.batch.save_level = SaveLevel::kInput;
  const int64_t least = PlanTraining(config)->host_peak_bytes;
  config.batch.save_level = SaveLevel::kAll;
  config.host_memory_bytes = least - 1;
  const absl::Status status = PlanTraining(config).status();
  EXPECT_EQ(ReasonOf(status), reason::kHostMemoryInsufficient);
  EXPECT_EQ(MetadataOf(status)["needed_bytes"], std::to_string(least));
  EXPECT_EQ(MetadataOf(status)["limit_source"], "limits.host_memory_bytes");
  EXPECT_THAT(std::string(status.message()), HasSubstr("fits with batch.micro_batch_tokens: 1024"));
  config.host_memory_bytes = 1 << 20;
  EXPECT_THAT(std::string(PlanTraining(config).status().message()),
              HasSubstr("no batch setting makes it fit"));
}

TEST(TrainingPlanTest, PredictsAStepAndSaysWhatElseThereWas) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(1000));
  TrainConfig config = GpuConfig(dir, int64_t{64} << 30);
  config.device.card = "NVIDIA H100 80GB HBM3";
  const auto plan = PlanTraining(config);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const StepPrediction& prediction = plan->prediction;
  EXPECT_GT(prediction.step_seconds, 0);
  EXPECT_DOUBLE_EQ(prediction.tokens_per_second, 4096 / prediction.step_seconds);
  EXPECT_EQ(prediction.machine, "h100-80gb-pcie5 (measured)");
  EXPECT_FALSE(prediction.bottleneck.empty());
  EXPECT_FALSE(prediction.runners_up.empty());
  EXPECT_TRUE(prediction.settings.empty()) << "not asked for";
  EXPECT_THAT(plan->rounding, AllOf(HasSubstr("micro-batches of 1024 tokens"),
                                    HasSubstr("gradients bfloat16"), HasSubstr("tied head")));
  // A GPU that is short of memory updates on the host, once a step: larger steps pay.
  config.device.memory_bytes = plan->device_bytes / 4;
  const auto tight = PlanTraining(config, {.larger_steps = true});
  ASSERT_TRUE(tight.ok()) << tight.status();
  ASSERT_FALSE(tight->prediction.settings.empty());
  EXPECT_EQ(tight->prediction.settings.front().words, "batch.tokens_per_step: 8192");
  EXPECT_THAT(tight->prediction.settings.front().effect, HasSubstr("% tokens/s"));
}

TEST(TrainingPlanTest, ThreadsBeyondTheCoresMakeNoStepFaster) {
  TrainConfig config;
  config.compute_threads = UsableCores();
  const MachineProfile all = ProfileOf(config, config.compute_threads).rates;
  EXPECT_EQ(ProfileOf(config, 8 * config.compute_threads).rates.matmul_flops, all.matmul_flops);
  EXPECT_EQ(ProfileOf(config, 8 * config.compute_threads).rates.adamw_parameters,
            all.adamw_parameters);
  EXPECT_LE(ProfileOf(config, 1).rates.matmul_flops, all.matmul_flops);
}

TEST(TrainingPlanTest, EstimatesTheWholeJobAndShowsItsStep) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(1000));
  TrainConfig config = GpuConfig(dir, int64_t{64} << 30);
  config.device.card = "NVIDIA H100 80GB HBM3";
  config.schedule.max_steps = 50;
  const auto plan = PlanTraining(config, {.program = true, .trace = true});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const JobEstimate& estimate = plan->estimate;
  EXPECT_EQ(estimate.steps, 50);
  EXPECT_FALSE(estimate.steps_estimated);
  EXPECT_DOUBLE_EQ(estimate.seconds, 50 * plan->prediction.step_seconds);
  // Between an idle card and a busy one.
  EXPECT_GT(estimate.joules, (250 + 75) * estimate.seconds);
  EXPECT_LE(estimate.joules, (250 + 700) * estimate.seconds);

  EXPECT_THAT(plan->step_program, ::testing::StartsWith("program blocks=10 micro_batches=4"));
  const nlohmann::json trace = nlohmann::json::parse(plan->step_trace);
  double end = 0;
  std::set<std::string> threads;
  int64_t ops = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") threads.insert(std::string(event["args"]["name"]));
    if (event["ph"] != "X") continue;
    ++ops;
    end = std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_EQ(threads, (std::set<std::string>{"copy_in", "compute", "copy_out", "host"}));
  EXPECT_NEAR(end * 1e-6, plan->prediction.step_seconds, 0.02 * plan->prediction.step_seconds);
  int64_t lines = 0;
  for (size_t at = 0; (at = plan->step_program.find("\n%", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(ops, lines);

  // Epochs of text that nobody has tokenized: a token a byte.
  config.schedule = {.epochs = 3};
  config.data.tokenizer = TokenizerChoice::kBytes;
  const auto epochs = PlanTraining(config);
  ASSERT_TRUE(epochs.ok()) << epochs.status();
  EXPECT_TRUE(epochs->estimate.steps_estimated);
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(dir.Path("data.txt")));
  EXPECT_EQ(epochs->estimate.steps, 3 * CeilDiv(bytes, 4096));
  EXPECT_TRUE(epochs->step_program.empty() && epochs->step_trace.empty());
}

TEST(TrainingPlanTest, ChoosesTheMicroBatchWhereTheJobHasNone) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(1000));
  TrainConfig config = GpuConfig(dir, int64_t{64} << 30);
  config.batch.micro_batch_tokens = 0;
  const auto chosen = PlanTraining(config);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_GT(chosen->micro_batch_tokens, 0);
  EXPECT_EQ(4096 % chosen->micro_batch_tokens, 0);
  for (int64_t tokens : {256, 1024, 4096}) {
    config.batch.micro_batch_tokens = tokens;
    const auto other = PlanTraining(config);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(other->micro_batch_tokens, tokens);
    EXPECT_LE(chosen->prediction.step_seconds, 1.01 * other->prediction.step_seconds) << tokens;
  }
  // Less memory, smaller micro-batches; where none fits, one row says what is missing.
  config.batch.micro_batch_tokens = 0;
  int64_t smallest = chosen->micro_batch_tokens;
  absl::Status refused;
  for (config.device.memory_bytes = chosen->device_bytes; refused.ok();
       config.device.memory_bytes /= 2) {
    const auto plan = PlanTraining(config);
    refused = plan.status();
    if (plan.ok()) smallest = std::min(smallest, plan->micro_batch_tokens);
  }
  EXPECT_LT(smallest, 1024);
  EXPECT_EQ(ReasonOf(refused), reason::kDeviceMemoryInsufficient);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("no micro-batch fits"));
}

// Then it is the plan of the first micro-batch, and says nothing of larger steps.
TEST(TrainingPlanTest, TriesNoMoreOnceItHasTriedSoMuch) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(1000));
  TrainConfig config = GpuConfig(dir, int64_t{64} << 30);
  config.batch.micro_batch_tokens = 0;
  const auto all = PlanTraining(config, {.larger_steps = true});
  const auto first = PlanTraining(config, {.larger_steps = true, .most_tried_ops = 1});
  ASSERT_TRUE(all.ok() && first.ok()) << all.status() << first.status();
  EXPECT_EQ(first->micro_batch_tokens, 4096) << "the largest is the first";
  EXPECT_LE(all->prediction.step_seconds, first->prediction.step_seconds);
  EXPECT_FALSE(all->prediction.settings.empty());
  EXPECT_TRUE(first->prediction.settings.empty());
  // The same job with that micro-batch gets that plan, as the worker that runs it will.
  config.batch.micro_batch_tokens = first->micro_batch_tokens;
  const auto again = PlanTraining(config);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->policy, first->policy);
  EXPECT_EQ(again->device_bytes, first->device_bytes);
}

TEST(TrainingPlanTest, PlansSmallerMomentsAndMomentsOnStorage) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(1000));
  TrainConfig config = GpuConfig(dir, int64_t{64} << 30);
  const auto bytes_of = [&](MomentType type, bool on_storage) {
    config.moment_type = type;
    config.moments_on_storage = on_storage;
    const auto plan = PlanTraining(config);
    EXPECT_TRUE(plan.ok()) << plan.status();
    for (const auto& entry : plan->phases[3].classes) {
      if (entry.name == "optimizer state") return std::pair(entry.bytes, plan->parameters);
    }
    return std::pair(int64_t{-1}, int64_t{0});
  };
  const auto [f32, parameters] = bytes_of(MomentType::kFloat32, false);
  EXPECT_GE(f32, 8 * parameters);
  // As many as the store that the run makes has more than one without moments.
  const ModelInput model = *OpenModelInput(config);
  const auto store_bytes = [&](OptimizerState state) {
    return (*HostStore::Create(model.layout, state, GradientPlane::kNone))->bytes();
  };
  for (const MomentType type : kMomentTypes) {
    EXPECT_EQ(bytes_of(type, false).first,
              store_bytes(StateOf(type)) - store_bytes(OptimizerState::kNone));
  }
  EXPECT_LT(bytes_of(MomentType::kBfloat16, false).first, f32);
  EXPECT_LT(bytes_of(MomentType::kInt8Blocks, false).first,
            bytes_of(MomentType::kBfloat16, false).first);
  EXPECT_LT(bytes_of(MomentType::kFloat32, true).first, f32 / 2);
  // A step that waits for storage takes longer.
  config.device.memory_bytes = int64_t{80} << 20;
  config.moments_on_storage = false;
  const double in_memory = PlanTraining(config)->prediction.step_seconds;
  config.moments_on_storage = true;
  EXPECT_GT(PlanTraining(config)->prediction.step_seconds, in_memory);
}

TEST(TrainingPlanTest, ACapIsNamedAsTheLimitThatBinds) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(1000));
  TrainConfig config = GpuConfig(dir, 1 << 20);
  EXPECT_EQ(MetadataOf(PlanTraining(config).status())["limit_source"], "device memory");
  config.device.memory_capped = true;
  const absl::Status status = PlanTraining(config).status();
  EXPECT_EQ(MetadataOf(status)["limit_source"], "limits.device_memory_bytes");
  EXPECT_THAT(std::string(status.message()), HasSubstr("(limit: limits.device_memory_bytes)"));
}

TEST(TrainingPlanTest, RefusesBatchesThatNoProgramCouldHold) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(1000));
  TrainConfig config = TinyTrainConfig(dir.Path("run"), dir.Path("data.txt"));
  config.batch = {
      .sequence_length = 2, .tokens_per_step = int64_t{1} << 40, .micro_batch_tokens = 2};
  EXPECT_THAT(std::string(PlanTraining(config).status().message()), HasSubstr("micro-batches"));
  config.batch = {.sequence_length = 4096,
                  .tokens_per_step = int64_t{1} << 50,
                  .micro_batch_tokens = int64_t{1} << 50};
  EXPECT_EQ(PlanTraining(config).status().code(), absl::StatusCode::kResourceExhausted);
  config.batch = {.sequence_length = 8192, .tokens_per_step = 8192, .micro_batch_tokens = 8192};
  EXPECT_THAT(std::string(PlanTraining(config).status().message()),
              HasSubstr("max_position_embeddings 4096"));
}

// Runs a job in a process of its own and returns the growth of its peak resident memory.
int64_t PeakGrowthOf(const TrainConfig& config) {
  int pipe_ends[2];
  EXPECT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    RecordingObserver observer;
    const bool ok = Train(config, observer).ok();
    getrusage(RUSAGE_SELF, &after);
    const int64_t growth = ok ? (after.ru_maxrss - before.ru_maxrss) * 1024 : -1;
    _exit(write(pipe_ends[1], &growth, sizeof(growth)) == sizeof(growth) ? 0 : 1);
  }
  int64_t growth = -1;
  EXPECT_EQ(read(pipe_ends[0], &growth, sizeof(growth)), static_cast<ssize_t>(sizeof(growth)));
  waitpid(child, nullptr, 0);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  return growth;
}

nlohmann::json LargeVocabularyConfig(int64_t hidden, bool tied) {
  nlohmann::json model = ByteModelConfig();
  model["vocab_size"] = 131072;
  model["hidden_size"] = hidden;
  model["tie_word_embeddings"] = tied;
  return model;
}

// BC-04: all logits of this job would be 2 GiB.
TEST(TrainingPlanTest, LargeVocabularyStaysInsideThePlan) {
  TempDir dir;
  std::string ids = "[1", labels = "[-100";
  for (int i = 1; i < 4096; ++i) {
    ids += ",1";
    labels += i < 17 ? ",1" : ",-100";
  }
  WriteFileOrDie(dir.Path("data.jsonl"), "{\"ids\":" + ids + "],\"labels\":" + labels + "]}\n");
  TrainConfig config = TinyTrainConfig(dir.Path("run"), dir.Path("data.jsonl"));
  config.model = ModelFromConfig{LargeVocabularyConfig(32, true).dump()};
  config.data.datasets[0].source.format = DataFormat::kTokenIdsJsonl;
  config.batch = {.sequence_length = 4096, .tokens_per_step = 4096, .micro_batch_tokens = 4096};
  config.schedule.max_steps = 1;
  config.host_memory_bytes = int64_t{1} << 30;
  const auto plan = PlanTraining(config);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const int64_t growth = PeakGrowthOf(config);
  EXPECT_GT(growth, 0);
  EXPECT_LE(growth, plan->host_peak_bytes) << FormatBytes(growth);
}

// BC-02: import, training, checkpoint and export stay inside the plan; loading anything whole
// beside the live buffers would not.
TEST(TrainingPlanTest, ImportTrainCheckpointAndExportStayInsideThePlan) {
  TempDir dir;
  WriteFileOrDie(dir.Path("data.txt"), SomeText(2000));
  const nlohmann::json model = LargeVocabularyConfig(64, false);
  std::filesystem::create_directory(dir.Path("model"));
  testing::WriteModel(dir.Path("model"), model,
                      testing::MakeFiles(testing::SpecOf(model), WeightType::kFloat32, 1));
  TrainConfig config = TinyTrainConfig(dir.Path("run"), dir.Path("data.txt"));
  config.model = ModelFromDirectory{dir.Path("model")};
  config.schedule.max_steps = 2;
  config.checkpoints.every_steps = 1;
  config.output_directory = dir.Path("out");
  const auto plan = PlanTraining(config);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const int64_t growth = PeakGrowthOf(config);
  EXPECT_GT(growth, 0);
  EXPECT_LE(growth, plan->host_peak_bytes * 11 / 10) << FormatBytes(growth);
  EXPECT_TRUE(std::filesystem::exists(dir.Path("out")));
}

TEST(ScheduleTest, GoldenTable) {
  const auto rates = [](ScheduleShape shape, double floor) {
    std::vector<double> all;
    const ScheduleConfig schedule{
        .shape = shape, .warmup_steps = 2, .final_fraction = floor, .max_steps = 6};
    for (int64_t step = 0; step < 6; ++step) all.push_back(LearningRate(schedule, 1.0, 6, step));
    return all;
  };
  const auto expect = [](const std::vector<double>& found, const std::vector<double>& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-9) << i;
  };
  expect(rates(ScheduleShape::kConstant, 0), {0.5, 1, 1, 1, 1, 1});
  expect(rates(ScheduleShape::kLinear, 0.2), {0.5, 1, 1, 0.8, 0.6, 0.4});
  expect(rates(ScheduleShape::kCosine, 0),
         {0.5, 1, 1, 0.8535533905932737, 0.5, 0.14644660940672624});
  expect(rates(ScheduleShape::kInverseSqrt, 0),
         {0.5, 1, std::sqrt(2.0 / 3), std::sqrt(0.5), std::sqrt(0.4), std::sqrt(1.0 / 3)});
}

TEST(ScheduleTest, DecayIsTheEndOfAStableRun) {
  ScheduleConfig schedule{.shape = ScheduleShape::kWarmupStableDecay,
                          .warmup_steps = 2,
                          .final_fraction = 0.2,
                          .decay_steps = 4};
  const auto rate = [&schedule](int64_t total, int64_t step) {
    return LearningRate(schedule, 1.0, total, step);
  };
  const std::vector<double> wanted = {0.5, 1, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4};
  for (int64_t step = 0; step < 10; ++step) EXPECT_NEAR(rate(10, step), wanted[step], 1e-9) << step;
  // Until its decay a longer run is the same, so that it can go on from a checkpoint of this one.
  for (int64_t step = 0; step <= 6; ++step) EXPECT_EQ(rate(1000, step), rate(10, step));
  schedule.decay_steps = 0;  // a tenth
  EXPECT_EQ(rate(25, 22), 1);
  EXPECT_NEAR(rate(25, 23), 1 - 0.8 / 3, 1e-9);
  schedule.decay_steps = 100;  // all that there is after the warm-up
  EXPECT_EQ(rate(6, 2), 1);
  EXPECT_NEAR(rate(6, 3), 0.8, 1e-9);
}

TEST(ScheduleTest, WarmupLongerThanTheRunKeepsRising) {
  const ScheduleConfig schedule{.warmup_steps = 100, .max_steps = 10};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 2.0, 10, 9), 0.2);
}

}  // namespace
}  // namespace penstock
