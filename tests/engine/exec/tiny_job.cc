#include "tests/engine/exec/tiny_job.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "engine/base/check.h"
#include "engine/base/labels.h"
#include "engine/memory/planes.h"
#include "engine/nn/kernel_scratch.h"
#include "engine/plan/train_program.h"
#include "tests/engine/plan/plan_testing.h"

namespace penstock {
namespace {

void RandomWeights(HostStore& store) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.2f);
  for (const BlockLayout& block : store.layout().blocks) {
    for (const Parameter& parameter : block.parameters) {
      for (int64_t i = parameter.offset; i < parameter.offset + parameter.size; ++i) {
        const float base = parameter.shape.size() == 1 ? 1.0f : 0.0f;  // norms
        const SplitValue value = Split(base + normal(random));
        store.block(block.block).hi[i] = value.hi;
        store.block(block.block).lo[i] = value.lo;
      }
    }
  }
}

}  // namespace

std::vector<TinyDocument> RandomDocuments(int count, uint64_t seed) {
  std::mt19937 random(seed);
  std::vector<TinyDocument> documents(count);
  for (TinyDocument& document : documents) {
    const int length = 1 + static_cast<int>(random() % 13);
    for (int i = 0; i < length; ++i) {
      document.ids.push_back(static_cast<int32_t>(random() % 40));
    }
    for (int i = 0; i < length; ++i) {
      const bool ignored = i + 1 == length || random() % 8 == 0;
      document.labels.push_back(ignored ? kIgnoreLabel : document.ids[i + 1]);
    }
  }
  return documents;
}

TinyJob::TinyJob(const Options& options, const std::vector<TinyDocument>& documents) {
  ModelSpec spec = TinySpec(options.layers, options.head);
  if (options.adjust != nullptr) options.adjust(spec);
  const ModelLayout layout = MakeLayout(spec);
  CutDocuments(options.cut, documents);
  store_ = *HostStore::Create(
      layout, OptimizerState::kFloat32,
      PlaneOf(options.policy, spec.num_layers, static_cast<int64_t>(batches_.size())));
  if (options.policy.update_time == UpdateTime::kWithBackward) optimizer_.max_grad_norm = 0;
  RandomWeights(*store_);
  const int64_t tokens = options.cut.tokens_per_micro_batch;
  const bool on_cpu = options.backend == Backend::kCpu;
  const ProgramShape shape{.micro_batches = static_cast<int32_t>(batches_.size()),
                           .tokens_per_micro_batch = tokens,
                           .element_bytes = on_cpu ? 4 : 2,
                           .kernel_scratch_bytes = on_cpu ? CpuKernelScratchBytes(options.threads)
                                                          : CudaKernelScratchBytes(spec, tokens)};
  const Policy& policy = options.policy;
  program_ = *BuildTrainProgram(spec, layout, policy, shape);
  load_ = *BuildLoadProgram(spec, layout, policy, shape);
  settle_ = *BuildSettleProgram(spec, layout, policy, shape, SettleGoal::kReadStore);
  settle_for_evaluation_ = *BuildSettleProgram(spec, layout, policy, shape, SettleGoal::kEvaluate);
  evaluation_ = *BuildEvaluationProgram(spec, layout, policy, shape);
  const auto create = on_cpu ? CreateCpuExecutor : CreateCudaExecutor;
  auto executor = create(spec, *store_,
                         {.tokens_per_micro_batch = tokens,
                          .max_positions = spec.max_positions,
                          .head_chunk_rows = options.policy.head_chunk_rows,
                          .mlp_chunk_rows = options.policy.mlp_chunk_rows,
                          .arena_bytes = std::max(program_.arena_bytes, evaluation_.arena_bytes),
                          .host_arena_bytes = program_.host_arena_bytes,
                          .arena_fill = options.arena_fill,
                          .page_lock = options.page_lock,
                          .threads = options.threads});
  PENSTOCK_CHECK(executor.ok(), std::string(executor.status().message()));
  executor_ = *std::move(executor);
}

void TinyJob::CutDocuments(const TinyCut& cut, const std::vector<TinyDocument>& documents) {
  const int64_t room = cut.tokens_per_micro_batch - cut.padding;
  for (const TinyDocument& document : documents) {
    const int64_t length = static_cast<int64_t>(document.ids.size());
    auto batch = std::find_if(batches_.begin(), batches_.end(), [&](const Batch& candidate) {
      return static_cast<int64_t>(candidate.ids.size()) + length <= room;
    });
    if (batch == batches_.end()) batch = batches_.emplace(batches_.end());
    batch->ids.insert(batch->ids.end(), document.ids.begin(), document.ids.end());
    batch->labels.insert(batch->labels.end(), document.labels.begin(), document.labels.end());
    for (int64_t i = 0; i < length; ++i) batch->positions.push_back(static_cast<int32_t>(i));
    batch->starts.push_back(static_cast<int32_t>(batch->ids.size()));
    labelled_tokens_ +=
        length - std::count(document.labels.begin(), document.labels.end(), kIgnoreLabel);
  }
  for (Batch& batch : batches_) {
    const size_t used = batch.ids.size();
    batch.ids.resize(cut.tokens_per_micro_batch, 0);
    batch.labels.resize(cut.tokens_per_micro_batch, kIgnoreLabel);
    for (size_t i = used; i < batch.ids.size(); ++i) {
      batch.positions.push_back(static_cast<int32_t>(i - used));
    }
    batch.starts.push_back(static_cast<int32_t>(batch.ids.size()));
    views_.push_back({.ids = batch.ids.data(),
                      .positions = batch.positions.data(),
                      .labels = batch.labels.data(),
                      .document_starts = batch.starts.data(),
                      .num_documents = static_cast<int64_t>(batch.starts.size()) - 1,
                      .tokens = static_cast<int64_t>(batch.ids.size())});
  }
}

absl::StatusOr<StepResult> TinyJob::TryRun(const StepProgram& program) {
  if (absl::Status status = executor_->Prepare(program); !status.ok()) return status;
  StepResult result;
  const absl::Status status =
      executor_->Run(program,
                     {.micro_batches = std::span(views_).first(program.micro_batches),
                      .labelled_tokens = program.micro_batches > 0 ? labelled_tokens_ : 0,
                      .optimizer = optimizer_},
                     result);
  if (!status.ok()) return status;
  return result;
}

void TinyJob::RunIfAny(const StepProgram& program) {
  if (program.ops.empty()) return;
  const auto result = TryRun(program);
  PENSTOCK_CHECK(result.ok(), std::string(result.status().message()));
}

double TinyJob::Evaluate() {
  RunIfAny(settle_for_evaluation_);
  const auto result = TryRun(evaluation_);
  PENSTOCK_CHECK(result.ok(), std::string(result.status().message()));
  return result->loss_sum / static_cast<double>(result->labelled_tokens);
}

StepResult TinyJob::Run(int steps) {
  if (!loaded_) RunIfAny(load_);
  loaded_ = true;
  StepResult result;
  for (int i = 0; i < steps; ++i) {
    const auto one = TryRun(program_);
    PENSTOCK_CHECK(one.ok(), std::string(one.status().message()));
    result = *one;
  }
  RunIfAny(settle_);
  return result;
}

std::vector<float> TinyJob::Weights() const {
  std::vector<float> weights;
  for (const BlockLayout& block : store_->layout().blocks) {
    const BlockStore& planes = store_->block(block.block);
    for (size_t i = 0; i < planes.hi.size(); ++i) {
      weights.push_back(Join(planes.hi[i], planes.lo[i]));
    }
  }
  return weights;
}

std::vector<float> TinyJob::Gradients() const {
  std::vector<float> gradients;
  for (const BlockLayout& block : store_->layout().blocks) {
    const BlockStore& planes = store_->block(block.block);
    gradients.insert(gradients.end(), planes.gradient.begin(), planes.gradient.end());
    for (bf16 gradient : planes.gradient_bf16) gradients.push_back(ToFloat(gradient));
  }
  return gradients;
}

std::vector<uint8_t> TinyJob::State() const {
  std::vector<uint8_t> bytes;
  bytes.reserve(store_->bytes());
  const auto add = [&bytes](const auto& span) {
    const auto* begin = reinterpret_cast<const uint8_t*>(span.data());
    bytes.insert(bytes.end(), begin, begin + span.size_bytes());
  };
  for (const BlockLayout& block : store_->layout().blocks) {
    const BlockStore& planes = store_->block(block.block);
    add(planes.hi);
    add(planes.lo);
    add(planes.m);
    add(planes.v);
  }
  return bytes;
}

}  // namespace penstock
