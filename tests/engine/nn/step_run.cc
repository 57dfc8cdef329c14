#include "tests/engine/nn/step_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/memory/planes.h"
#include "engine/nn/kernel_scratch.h"
#include "engine/plan/train_program.h"
#include "engine/train/import.h"
#include "engine/train/model_directory.h"

namespace penstock {

std::ostream& operator<<(std::ostream& out, const StepVariant& variant) {
  return out << variant.tokens_per_micro_batch << " tokens a micro-batch, save level "
             << static_cast<int>(variant.policy.saving.level) << ", "
             << variant.policy.decoder_slots << " slots, " << variant.policy.head_chunk_rows
             << " rows of logits, " << variant.policy.mlp_chunk_rows << " rows of the MLP, "
             << variant.threads << " threads";
}

absl::StatusOr<std::unique_ptr<StepRun>> StepRun::Create(const ReferenceCase& reference,
                                                         const StepVariant& variant,
                                                         double epsilon) {
  auto run = std::unique_ptr<StepRun>(new StepRun);
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<ModelDirectory> directory,
                            ModelDirectory::Open(reference.model_directory));
  run->spec_ = directory->spec();
  PENSTOCK_ASSIGN_OR_RETURN(
      run->store_,
      HostStore::Create(directory->layout(), OptimizerState::kFloat32, GradientPlane::kFloat32));
  ThreadPool pool(1);
  PENSTOCK_RETURN_IF_ERROR(ImportWeights(*directory, *run->store_, pool,
                                         [](int64_t, int64_t) { return absl::OkStatus(); }));
  run->optimizer_ = {.learning_rate = reference.learning_rate,
                     .beta1 = reference.beta1,
                     .beta2 = reference.beta2,
                     .epsilon = epsilon,
                     .weight_decay = reference.weight_decay,
                     .max_grad_norm = reference.max_norm};
  PENSTOCK_RETURN_IF_ERROR(run->CutIntoMicroBatches(reference, variant.tokens_per_micro_batch));
  PENSTOCK_RETURN_IF_ERROR(run->BuildExecutor(variant));
  return run;
}

absl::Status StepRun::CutIntoMicroBatches(const ReferenceCase& reference, int64_t capacity) {
  for (size_t d = 0; d + 1 < reference.document_starts.size(); ++d) {
    const int32_t begin = reference.document_starts[d], end = reference.document_starts[d + 1];
    if (end - begin > capacity) return absl::InvalidArgumentError("a document does not fit");
    const auto room = std::find_if(batches_.begin(), batches_.end(), [&](const MicroBatch& batch) {
      return batch.tokens() + end - begin <= capacity;
    });
    MicroBatch& batch = room != batches_.end() ? *room : batches_.emplace_back();
    for (int32_t i = begin; i < end; ++i) {
      batch.ids.push_back(reference.ids[i]);
      batch.positions.push_back(reference.position_ids[i]);
      batch.labels.push_back(reference.labels[i]);
      if (reference.labels[i] != kIgnoreLabel) ++labelled_tokens_;
    }
    batch.document_starts.push_back(static_cast<int32_t>(batch.tokens()));
  }
  for (MicroBatch& batch : batches_) {
    const int64_t padding = capacity - batch.tokens();
    for (int64_t i = 0; i < padding; ++i) batch.positions.push_back(static_cast<int32_t>(i));
    batch.ids.resize(capacity, 0);
    batch.labels.resize(capacity, kIgnoreLabel);
    if (padding > 0) batch.document_starts.push_back(static_cast<int32_t>(capacity));
    views_.push_back({.ids = batch.ids.data(),
                      .positions = batch.positions.data(),
                      .labels = batch.labels.data(),
                      .document_starts = batch.document_starts.data(),
                      .num_documents = static_cast<int64_t>(batch.document_starts.size()) - 1,
                      .tokens = capacity});
  }
  return absl::OkStatus();
}

absl::Status StepRun::BuildExecutor(const StepVariant& variant) {
  const int64_t tokens = variant.tokens_per_micro_batch;
  PENSTOCK_ASSIGN_OR_RETURN(
      program_,
      BuildTrainProgram(spec_, store_->layout(), variant.policy,
                        {.micro_batches = static_cast<int32_t>(batches_.size()),
                         .tokens_per_micro_batch = tokens,
                         .kernel_scratch_bytes = CpuKernelScratchBytes(variant.threads)}));
  PENSTOCK_ASSIGN_OR_RETURN(executor_,
                            CreateCpuExecutor(spec_, *store_,
                                              {.tokens_per_micro_batch = tokens,
                                               .max_positions = tokens,
                                               .head_chunk_rows = variant.policy.head_chunk_rows,
                                               .mlp_chunk_rows = variant.policy.mlp_chunk_rows,
                                               .arena_bytes = program_.arena_bytes,
                                               .threads = variant.threads}));
  return executor_->Prepare(program_);
}

absl::StatusOr<StepResult> StepRun::Step() {
  StepResult result;
  PENSTOCK_RETURN_IF_ERROR(executor_->Run(
      program_,
      {.micro_batches = views_, .labelled_tokens = labelled_tokens_, .optimizer = optimizer_},
      result));
  return result;
}

TensorMap StepRun::Gradients() const {
  TensorMap gradients;
  for (const BlockLayout& block : store_->layout().blocks) {
    const float* plane = store_->block(block.block).gradient.data();
    for (const Parameter& parameter : block.parameters) {
      gradients[parameter.name].assign(plane + parameter.offset,
                                       plane + parameter.offset + parameter.size);
    }
  }
  return gradients;
}

TensorMap StepRun::Weights() const {
  TensorMap weights;
  for (const BlockLayout& block : store_->layout().blocks) {
    const BlockStore& planes = std::as_const(*store_).block(block.block);
    for (const Parameter& parameter : block.parameters) {
      std::vector<float>& values = weights[parameter.name];
      values.resize(parameter.size);
      JoinPlanes(planes.hi.data() + parameter.offset, planes.lo.data() + parameter.offset,
                 parameter.size, values.data());
    }
  }
  return weights;
}

}  // namespace penstock
