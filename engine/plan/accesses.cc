#include "engine/plan/accesses.h"

namespace penstock {
namespace {

class Collector {
 public:
  explicit Collector(const StepProgram& program) : program_(program) {}

  void operator()(const FetchWeights& op) {
    Read(ResourceKind::kHostWeights, Index(op.block), {Meaning::kValue});
    Write(op.weights, {Meaning::kWeights, Index(op.block)});
  }

  void operator()(const EmbedForward& op) {
    Read(op.weights, {Meaning::kWeights, 0});
    Write(op.out, {Meaning::kActivation, 1, op.micro_batch});
  }

  void operator()(const ForwardBlock& op) {
    const int32_t block = Index(op.block);
    Read(op.weights, {Meaning::kWeights, block});
    Read(op.in, {Meaning::kActivation, block, op.micro_batch});
    Write(op.out, {Meaning::kActivation, block + 1, op.micro_batch});
    Write(op.attention, {Meaning::kAttentionTensors, block, op.micro_batch});
    // Otherwise chunks of rows take each other's place.
    const bool whole = op.saved == SaveLevel::kAll;
    Write(op.mlp, whole ? Content{Meaning::kMlpTensors, block, op.micro_batch} : Content{});
    Write(op.scratch, {});
  }

  void operator()(const HeadLoss& op) {
    const int32_t block = Index(op.block);
    const int32_t head_block = op.head_weights == op.weights ? block : 0;
    Read(op.weights, {Meaning::kWeights, block});
    if (head_block != block) Read(op.head_weights, {Meaning::kWeights, head_block});
    Read(op.in, {Meaning::kActivation, block, op.micro_batch});
    Write(op.scratch, {});
    list_.push_back({ResourceKind::kLoss, 0, AccessMode::kWrite, {}, {Meaning::kValue}});
    if (op.d_in == kNoBuffer) return;
    Write(op.d_in, {Meaning::kActivationGradient, block, op.micro_batch});
    Sum(op.gradients, block, op.accumulate);
    if (op.head_gradients != op.gradients) Sum(op.head_gradients, head_block, op.accumulate);
  }

  void operator()(const BackwardBlock& op) {
    const int32_t block = Index(op.block);
    const Content attention{Meaning::kAttentionTensors, block, op.micro_batch};
    const Content mlp{Meaning::kMlpTensors, block, op.micro_batch};
    Read(op.weights, {Meaning::kWeights, block});
    Read(op.in, {Meaning::kActivation, block, op.micro_batch});
    if (op.saved == SaveLevel::kInput) {
      Write(op.attention, attention);
    } else {
      Read(op.attention, attention);
    }
    // Gradients are computed over the MLP's tensors: they are gone afterwards.
    if (op.saved == SaveLevel::kAll) {
      Update(op.mlp, mlp, {});
    } else {
      Write(op.mlp, {});
    }
    Update(op.d, {Meaning::kActivationGradient, block + 1, op.micro_batch},
           {Meaning::kActivationGradient, block, op.micro_batch});
    Sum(op.gradients, block, op.accumulate);
    Write(op.scratch, {});
  }

  void operator()(const EmbedBackward& op) {
    Read(op.d, {Meaning::kActivationGradient, 1, op.micro_batch});
    Sum(op.gradients, 0, op.accumulate);
    Write(op.scratch, {});
  }

  void operator()(const StoreSaved& op) {
    const Content content = Saved(op.part, Index(op.block), op.micro_batch);
    Read(op.device, content);
    Write(op.host, content);
  }

  void operator()(const FetchSaved& op) {
    const Content content = Saved(op.part, Index(op.block), op.micro_batch);
    Read(op.host, content);
    Write(op.device, content);
  }

  void operator()(const RoundGradients& op) {
    const int32_t block = Index(op.block);
    const Content sums{Meaning::kGradients, block, CompleteSums(program_, block)};
    const Content rounded{Meaning::kRounded, block};
    if (op.sums == op.out) {
      Update(op.sums, sums, rounded);
    } else {
      Read(op.sums, sums);
      Write(op.out, rounded);
    }
  }

  void operator()(const ReduceNorm& op) {
    ReadGradients(op.block, op.gradients);
    WriteHost(ResourceKind::kNormPartial, Index(op.block));
  }

  void operator()(const StoreGradients& op) {
    ReadGradients(op.block, op.gradients);
    if (op.host == kNoBuffer) {
      WriteHost(ResourceKind::kHostGradient, Index(op.block));
    } else {
      Write(op.host, CompleteGradients(program_, Index(op.block)));
    }
  }

  // The place of the host gradients is that of the sums.
  void operator()(const StoreSums& op) {
    const Content sums{Meaning::kGradients, Index(op.block), op.terms};
    Read(op.sums, sums);
    list_.push_back({ResourceKind::kHostGradient, Index(op.block), AccessMode::kWrite, {}, sums});
  }

  void operator()(const FetchSums& op) {
    const Content sums{Meaning::kGradients, Index(op.block), op.terms};
    Read(ResourceKind::kHostGradient, Index(op.block), sums);
    Write(op.sums, sums);
  }

  void operator()(const ClipScale&) {
    for (int32_t block = 0; block < program_.num_blocks; ++block) {
      Read(ResourceKind::kNormPartial, block, {Meaning::kValue});
    }
    Read(ResourceKind::kLoss, 0, {Meaning::kValue});
    WriteHost(ResourceKind::kClipScale, 0);
  }

  void operator()(const DecideUnclipped&) {
    Read(ResourceKind::kLoss, 0, {Meaning::kValue});
    WriteHost(ResourceKind::kClipScale, 0);
  }

  void operator()(const UpdateHost& op) {
    Read(ResourceKind::kClipScale, 0, {Meaning::kValue});
    if (op.gradients == kNoBuffer) {
      Read(ResourceKind::kHostGradient, Index(op.block), {Meaning::kValue});
    } else {
      ReadGradients(op.block, op.gradients);
      Read(ResourceKind::kNormPartial, Index(op.block), {Meaning::kValue});
    }
    if (ChangesWeights(op.part)) UpdateOnHost(ResourceKind::kHostWeights, op.block);
    if (ChangesMoments(op.part)) {
      UpdateOnHost(ResourceKind::kHostOptimizer, op.block);
    } else {
      Read(ResourceKind::kHostOptimizer, Index(op.block), {Meaning::kValue});
    }
  }

  void operator()(const UpdateDevice& op) {
    const Content weights{Meaning::kWeights, Index(op.block)};
    const Content correction{Meaning::kCorrection, Index(op.block)};
    const Content moments{Meaning::kMoments, Index(op.block)};
    Read(ResourceKind::kClipScale, 0, {Meaning::kValue});
    ReadGradients(op.block, op.gradients);
    Update(op.weights, weights, weights);
    Update(op.correction, correction, correction);
    if (ChangesMoments(op.part)) {
      Update(op.moments, moments, moments);
    } else {
      Read(op.moments, moments);
    }
  }

  void operator()(const FetchMaster& op) {
    const int32_t block = Index(op.block);
    Read(ResourceKind::kHostWeights, block, {Meaning::kValue});
    Write(op.weights, {Meaning::kWeights, block});
    Write(op.correction, {Meaning::kCorrection, block});
  }

  void operator()(const StoreMaster& op) {
    const int32_t block = Index(op.block);
    Read(op.weights, {Meaning::kWeights, block});
    Read(op.correction, {Meaning::kCorrection, block});
    WriteHost(ResourceKind::kHostWeights, block);
  }

  void operator()(const FetchMoments& op) {
    Read(ResourceKind::kHostOptimizer, Index(op.block), {Meaning::kValue});
    Write(op.moments, {Meaning::kMoments, Index(op.block)});
  }

  void operator()(const StoreMoments& op) {
    Read(op.moments, {Meaning::kMoments, Index(op.block)});
    WriteHost(ResourceKind::kHostOptimizer, Index(op.block));
  }

  AccessList Take() { return std::move(list_); }

 private:
  void Read(ResourceKind kind, int32_t index, Content content) {
    list_.push_back({kind, index, AccessMode::kRead, content, {}});
  }
  void Read(BufferId buffer, Content content) {
    Read(ResourceKind::kBuffer, Index(buffer), content);
  }
  void Write(BufferId buffer, Content content) {
    list_.push_back({ResourceKind::kBuffer, Index(buffer), AccessMode::kWrite, {}, content});
  }
  void Update(BufferId buffer, Content before, Content after) {
    list_.push_back({ResourceKind::kBuffer, Index(buffer), AccessMode::kUpdate, before, after});
  }
  void ReadGradients(BlockId block, BufferId buffer) {
    Read(buffer, CompleteGradients(program_, Index(block)));
  }
  static Content Saved(SavedPart part, int32_t block, int32_t micro_batch) {
    switch (part) {
      case SavedPart::kInput:
        return {Meaning::kActivation, block, micro_batch};
      case SavedPart::kAttention:
        return {Meaning::kAttentionTensors, block, micro_batch};
      case SavedPart::kMlp:
        return {Meaning::kMlpTensors, block, micro_batch};
    }
    return {};
  }
  void WriteHost(ResourceKind kind, int32_t index) {
    list_.push_back({kind, index, AccessMode::kWrite, {}, {Meaning::kValue}});
  }
  void UpdateOnHost(ResourceKind kind, BlockId block) {
    list_.push_back(
        {kind, Index(block), AccessMode::kUpdate, {Meaning::kValue}, {Meaning::kValue}});
  }
  void Sum(BufferId buffer, int32_t block, Accumulate accumulate) {
    const Content sums{Meaning::kGradients, block};
    const AccessMode mode =
        accumulate == Accumulate::kAdd ? AccessMode::kUpdate : AccessMode::kWrite;
    list_.push_back({ResourceKind::kBuffer, Index(buffer), mode, sums, sums});
  }

  const StepProgram& program_;
  AccessList list_;
};

}  // namespace

int32_t CompleteSums(const StepProgram& program, int32_t block) {
  return program.micro_batches * (program.tied && block == 0 ? 2 : 1);
}

Content CompleteGradients(const StepProgram& program, int32_t block) {
  if (program.gradient_type == GradientType::kBfloat16) return {Meaning::kRounded, block};
  return {Meaning::kGradients, block, CompleteSums(program, block)};
}

Content ToContent(const StepProgram& program, const Held& held) {
  const int32_t block = Index(held.block);
  switch (held.content) {
    case HeldContent::kWeights:
      return {Meaning::kWeights, block};
    case HeldContent::kCorrection:
      return {Meaning::kCorrection, block};
    case HeldContent::kMoments:
      return {Meaning::kMoments, block};
    case HeldContent::kGradients:
      return CompleteGradients(program, block);
  }
  return {};
}

AccessList AccessesOf(const StepProgram& program, const Op& op) {
  Collector collector(program);
  std::visit(collector, op.body);
  return collector.Take();
}

}  // namespace penstock
