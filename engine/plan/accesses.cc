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
    Write(op.mlp, {Meaning::kMlpTensors, block, op.micro_batch});
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
    // The gradients by the MLP's tensors take their place.
    if (op.saved == SaveLevel::kAll) {
      list_.push_back({ResourceKind::kBuffer, Index(op.mlp), AccessMode::kUpdate, mlp, {}});
    } else {
      Write(op.mlp, {});
    }
    list_.push_back({ResourceKind::kBuffer,
                     Index(op.d),
                     AccessMode::kUpdate,
                     {Meaning::kActivationGradient, block + 1, op.micro_batch},
                     {Meaning::kActivationGradient, block, op.micro_batch}});
    Sum(op.gradients, block, op.accumulate);
    Write(op.scratch, {});
  }

  void operator()(const EmbedBackward& op) {
    Read(op.d, {Meaning::kActivationGradient, 1, op.micro_batch});
    Sum(op.gradients, 0, op.accumulate);
    Write(op.scratch, {});
  }

  void operator()(const ReduceNorm& op) {
    Read(op.gradients, {Meaning::kGradients, Index(op.block)});
    WriteHost(ResourceKind::kNormPartial, Index(op.block));
  }

  void operator()(const StoreGradients& op) {
    Read(op.gradients, {Meaning::kGradients, Index(op.block)});
    WriteHost(ResourceKind::kHostGradient, Index(op.block));
  }

  void operator()(const ClipScale&) {
    for (int32_t block = 0; block < program_.num_blocks; ++block) {
      Read(ResourceKind::kNormPartial, block, {Meaning::kValue});
    }
    Read(ResourceKind::kLoss, 0, {Meaning::kValue});
    WriteHost(ResourceKind::kClipScale, 0);
  }

  void operator()(const UpdateHost& op) {
    Read(ResourceKind::kClipScale, 0, {Meaning::kValue});
    Read(ResourceKind::kHostGradient, Index(op.block), {Meaning::kValue});
    for (ResourceKind kind : {ResourceKind::kHostWeights, ResourceKind::kHostOptimizer}) {
      list_.push_back(
          {kind, Index(op.block), AccessMode::kUpdate, {Meaning::kValue}, {Meaning::kValue}});
    }
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
  void WriteHost(ResourceKind kind, int32_t index) {
    list_.push_back({kind, index, AccessMode::kWrite, {}, {Meaning::kValue}});
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

AccessList AccessesOf(const StepProgram& program, const Op& op) {
  Collector collector(program);
  std::visit(collector, op.body);
  return collector.Take();
}

}  // namespace penstock
