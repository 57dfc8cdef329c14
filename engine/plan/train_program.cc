#include "engine/plan/train_program.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/base/status.h"
#include "engine/plan/hazards.h"
#include "engine/plan/policy_check.h"
#include "engine/plan/program_memory.h"
#include "engine/plan/slot_table.h"
#include "engine/plan/verify.h"

namespace penstock {
namespace {

class ProgramBuilder {
 public:
  ProgramBuilder(const ModelSpec& spec, const ModelLayout& layout, const Policy& policy,
                 const ProgramShape& shape)
      : spec_(spec),
        policy_(policy),
        shape_(shape),
        memory_(spec, layout, policy, shape, program_),
        head_{static_cast<int32_t>(spec.num_blocks()) - 1},
        last_layer_(static_cast<int32_t>(spec.num_layers)) {
    program_.num_blocks = static_cast<int32_t>(spec.num_blocks());
    program_.micro_batches = shape.micro_batches;
    program_.tied = spec.tied();
    program_.gradient_type = policy.gradient_type;
  }

  absl::StatusOr<StepProgram> Train() {
    EmitTrain();
    return Finish();
  }
  absl::StatusOr<StepProgram> Draft() {
    EmitTrain();
    PENSTOCK_RETURN_IF_ERROR(memory_.Finish());
    return std::move(program_);
  }

  absl::StatusOr<StepProgram> Evaluation() {
    memory_.AllocateHeld();
    memory_.AllocateForward();
    Hold(program_.finds, Holding::kWeights);
    PlanSlots(/*rounds=*/1, /*both_ways=*/false);
    end_ = shape_.micro_batches;
    pass_ = Pass::kEvaluation;
    Forward();
    for (int32_t mb = 0; mb < end_; ++mb) {
      Emit(Lane::kCompute, Loss(mb, Accumulate::kOverwrite));
    }
    Hold(program_.leaves, Holding::kWeights);
    return Finish();
  }

  absl::StatusOr<StepProgram> Load() {
    program_.micro_batches = 0;
    memory_.AllocateHeld();
    ForEachBlock([&](BlockId block) {
      if (HasMaster(block)) {
        Emit(Lane::kCopyIn,
             FetchMaster{block, memory_.own_weights(block), memory_.correction(block)});
      }
      if (HasState(block)) Emit(Lane::kCopyIn, FetchMoments{block, memory_.moments(block)});
    });
    Hold(program_.leaves, Holding::kState);
    return Finish();
  }

  absl::StatusOr<StepProgram> Settle(SettleGoal goal) {
    const bool pending = LeavesUpdatePending(policy_.update_time);
    program_.updates = pending ? Updates::kPending : Updates::kNone;
    program_.micro_batches = 0;
    memory_.AllocateHeld();
    if (pending) memory_.AllocateHeldGradients();
    Hold(program_.finds, pending ? Holding::kPendingUpdate : Holding::kState);
    if (pending) EmitUpdates(/*moments_later=*/false);
    ForEachBlock([&](BlockId block) {
      if (policy_.PlacementOf(Index(block)).weights && !HasMaster(block)) {
        Emit(Lane::kCopyIn, FetchWeights{block, memory_.own_weights(block)});
      }
      if (goal != SettleGoal::kReadStore) return;
      if (HasMaster(block)) {
        Emit(Lane::kCopyOut,
             StoreMaster{block, memory_.own_weights(block), memory_.correction(block)});
      }
      if (HasState(block)) Emit(Lane::kCopyOut, StoreMoments{block, memory_.moments(block)});
    });
    Hold(program_.leaves, Holding::kWeights);
    return Finish();
  }

 private:
  void EmitTrain() {
    const bool pending = LeavesUpdatePending(policy_.update_time);
    program_.updates = pending ? Updates::kPending : Updates::kThisStep;
    memory_.AllocateHeld();
    memory_.AllocateHeldGradients();
    memory_.AllocateSavedUnderMoments();
    memory_.AllocateForward();
    memory_.AllocateBackward();
    for (BlockId block : memory_.visitors()) {
      visitors_.push_back({block, MomentsComeWith(block, memory_.MomentsComeAfter(block))});
    }
    Hold(program_.finds, pending ? Holding::kPendingUpdate : Holding::kState);
    if (pending) EmitUpdates(policy_.update_time == UpdateTime::kNextStepMomentsLater);
    int32_t rounds = 0;
    for (int32_t mb = 0; mb < shape_.micro_batches;
         mb += policy_.RoundSize(mb, shape_.micro_batches))
      ++rounds;
    PlanSlots(rounds, /*both_ways=*/true);
    for (first_ = 0; first_ < shape_.micro_batches; first_ = end_) {
      end_ = first_ + policy_.RoundSize(first_, shape_.micro_batches);
      pass_ = Pass::kForward;
      Forward();
      pass_ = Pass::kBackward;
      HeadBackward();
      for (int32_t block = last_layer_; block >= 1; --block) Backward(BlockId{block});
      EmbeddingBackward();
    }
    Emit(Lane::kHost, ClipScale{});
    if (policy_.update_time == UpdateTime::kEndOfStep) EmitUpdates(/*moments_later=*/false);
    Hold(program_.leaves, pending ? Holding::kPendingUpdate : Holding::kState);
  }

  template <typename Visit>
  void ForEachBlock(Visit visit) const {
    for (int32_t block = 0; block < program_.num_blocks; ++block) visit(BlockId{block});
  }
  bool HasMaster(BlockId block) const { return policy_.PlacementOf(Index(block)).HasMaster(); }
  bool HasState(BlockId block) const { return policy_.PlacementOf(Index(block)).state; }

  // What a program finds or leaves on the device.
  enum class Holding {
    kState,          // state and weights of the blocks that are updated there
    kPendingUpdate,  // and their complete gradients, and moments that came for them
    kWeights,        // state, and the weights of all blocks that stay
  };
  void Hold(std::vector<Held>& list, Holding holding) const {
    ForEachBlock([&](BlockId block) {
      const bool pending = holding == Holding::kPendingUpdate;
      if (HasMaster(block)) {
        list.push_back({memory_.correction(block), block, HeldContent::kCorrection});
        if (HasState(block) || pending) {
          list.push_back({memory_.moments(block), block, HeldContent::kMoments});
        }
        if (pending) list.push_back({memory_.complete(block), block, HeldContent::kGradients});
      }
      const bool stays = policy_.PlacementOf(Index(block)).weights && holding == Holding::kWeights;
      if (HasMaster(block) || stays) {
        list.push_back({memory_.own_weights(block), block, HeldContent::kWeights});
      }
    });
  }

  void Emit(Lane lane, OpBody body) { program_.ops.push_back({lane, {}, std::move(body)}); }

  // The device's blocks first: forward can begin. Then in the order in which forward needs them.
  // What waits for later is first done where backward comes first.
  void EmitUpdates(bool moments_later) {
    ForEachBlock([&](BlockId block) {
      if (!HasMaster(block)) return;
      Emit(Lane::kCompute,
           UpdateDevice{.block = block,
                        .weights = memory_.own_weights(block),
                        .correction = memory_.correction(block),
                        .moments = memory_.moments(block),
                        .gradients = memory_.complete(block),
                        .part = HasState(block) ? UpdatePart::kAll : UpdatePart::kWeights});
    });
    const auto update_host = [&](BlockId block, UpdatePart part) {
      Emit(Lane::kHost, UpdateHost{.block = block, .part = part});
    };
    ForEachBlock([&](BlockId block) {
      if (HasMaster(block)) return;
      update_host(block, moments_later ? UpdatePart::kWeights : UpdatePart::kAll);
    });
    for (int32_t index = program_.num_blocks - 1; index >= 0; --index) {
      const BlockId block{index};
      if (HasState(block)) continue;
      if (moments_later || HasMaster(block)) update_host(block, UpdatePart::kMoments);
    }
  }

  void PlanSlots(int32_t rounds, bool both_ways) {
    std::vector<int32_t> uses;
    const auto add = [&](int32_t block) {
      if (memory_.own_weights(BlockId{block}) == kNoBuffer) uses.push_back(block);
    };
    for (int32_t round = 0; round < rounds; ++round) {
      for (int32_t block = 1; block <= last_layer_; ++block) add(block);
      for (int32_t block = last_layer_; both_ways && block >= 1; --block) add(block);
    }
    slots_.emplace(memory_.slots(), std::move(uses));
  }

  // The block's weights on the device, fetched if they are not there.
  BufferId Weights(BlockId block) {
    const BufferId own = memory_.own_weights(block);
    if (own == kNoBuffer) {
      const SlotTable::Place place = slots_->Next(Index(block));
      if (place.fetch) Emit(Lane::kCopyIn, FetchWeights{block, place.slot});
      return place.slot;
    }
    // What is updated on the device, and what an evaluation finds there, is up to date.
    const bool held =
        HasMaster(block) || (evaluates() && policy_.PlacementOf(Index(block)).weights);
    if (!held && !fetched_[Index(block)]) Emit(Lane::kCopyIn, FetchWeights{block, own});
    fetched_[Index(block)] = true;
    return own;
  }

  template <typename Visit>
  void ForEachMicroBatch(Visit visit) {
    for (int32_t mb = first_; mb < end_; ++mb) visit(mb);
  }

  void Forward() {
    const BufferId table = Weights(BlockId{0});
    ForEachMicroBatch([&](int32_t mb) {
      Emit(Lane::kCompute, EmbedForward{mb, table, memory_.Input(1, mb, pass_)});
      if (!evaluates()) StoreParts(BlockId{1}, mb, SavedPart::kInput);
    });
    for (int32_t block = 1; block <= last_layer_; ++block) {
      const BufferId weights = Weights(BlockId{block});
      ForEachMicroBatch([&](int32_t mb) { ForwardLayer(BlockId{block}, mb, weights); });
    }
    head_weights_ = Weights(head_);
  }

  void ForwardLayer(BlockId block, int32_t mb, BufferId weights) {
    const int32_t index = Index(block);
    Emit(Lane::kCompute,
         ForwardBlock{.block = block,
                      .micro_batch = mb,
                      .saved = evaluates() ? SaveLevel::kInput : SavingOf(block).level,
                      .weights = weights,
                      .in = memory_.Input(index, mb, pass_),
                      .out = memory_.Input(index + 1, mb, pass_),
                      .attention = memory_.Attention(index, mb, pass_),
                      .mlp = memory_.Mlp(index, mb, pass_),
                      .scratch = memory_.scratch()});
    if (evaluates()) return;
    StoreParts(block, mb, SavedPart::kAttention);
    StoreParts(block, mb, SavedPart::kMlp);
    if (index < last_layer_) StoreParts(BlockId{index + 1}, mb, SavedPart::kInput);
  }

  bool evaluates() const { return pass_ == Pass::kEvaluation; }

  // In the current round.
  Saving SavingOf(BlockId block) const {
    return policy_.SavingOf(Index(block) - 1, /*first_round=*/first_ == 0);
  }

  // Whether the part of the layer is among what its level saves, and waits on the host.
  bool OnHost(BlockId block, SavedPart part) const {
    const Saving saving = SavingOf(block);
    if (saving.place == SavePlace::kDevice) return false;
    switch (part) {
      case SavedPart::kInput:
        return true;
      case SavedPart::kAttention:
        return saving.level != SaveLevel::kInput;
      case SavedPart::kMlp:
        return saving.level == SaveLevel::kAll;
    }
    return false;
  }
  BufferId OnDevice(BlockId block, int32_t mb, SavedPart part) {
    switch (part) {
      case SavedPart::kInput:
        return memory_.Input(Index(block), mb, pass_);
      case SavedPart::kAttention:
        return memory_.Attention(Index(block), mb, pass_);
      case SavedPart::kMlp:
        return memory_.Mlp(Index(block), mb, pass_);
    }
    return kNoBuffer;
  }
  void StoreParts(BlockId block, int32_t mb, SavedPart part) {
    if (!OnHost(block, part)) return;
    Emit(Lane::kCopyOut, StoreSaved{block, mb, part, OnDevice(block, mb, part),
                                    memory_.OnHost(part, Index(block), mb)});
  }
  void FetchParts(BlockId block, int32_t mb) {
    for (SavedPart part : {SavedPart::kInput, SavedPart::kAttention, SavedPart::kMlp}) {
      if (!OnHost(block, part)) continue;
      Emit(Lane::kCopyIn, FetchSaved{block, mb, part, memory_.OnHost(part, Index(block), mb),
                                     OnDevice(block, mb, part)});
    }
  }

  HeadLoss Loss(int32_t mb, Accumulate accumulate) {
    return {.block = head_,
            .micro_batch = mb,
            .weights = head_weights_,
            .head_weights = spec_.tied() ? memory_.own_weights(BlockId{0}) : head_weights_,
            .in = memory_.Input(last_layer_ + 1, mb, pass_),
            .d_in = kNoBuffer,
            .gradients = kNoBuffer,
            .head_gradients = kNoBuffer,
            .scratch = memory_.scratch(),
            .accumulate = accumulate};
  }

  static Accumulate Mode(int32_t mb) { return mb == 0 ? Accumulate::kOverwrite : Accumulate::kAdd; }

  // Whether the block's sums make room for another's between rounds.
  bool SumsLeave(BlockId block) const {
    const bool layer = Index(block) >= 1 && Index(block) <= last_layer_;
    return layer && !policy_.PlacementOf(Index(block)).gradients;
  }

  // In the last round the sums are complete: their norm counts, and they leave for the host.
  void EmitGradients(BlockId block) {
    if (end_ < shape_.micro_batches) {
      if (SumsLeave(block)) Emit(Lane::kCopyOut, StoreSums{block, memory_.sums(block), end_});
      return;
    }
    const BufferId complete = memory_.complete(block);
    if (policy_.gradient_type == GradientType::kBfloat16) {
      Emit(Lane::kCompute, RoundGradients{block, memory_.sums(block), complete});
    }
    Emit(Lane::kCompute, ReduceNorm{block, complete});
    if (HasState(block)) return;
    if (policy_.update_time != UpdateTime::kWithBackward) {
      Emit(Lane::kCopyOut, StoreGradients{block, complete});
      return;
    }
    const BufferId passing = memory_.PassingGradients(block);
    Emit(Lane::kCopyOut, StoreGradients{block, complete, passing});
    Emit(Lane::kHost, UpdateHost{block, passing});
  }

  // Before which block of the last backward pass the moments of `block` are fetched, whose place is
  // free when the pass is through with `after`. Weights for which a slot becomes free then come
  // first. Where weights stream, moments that wait for the host hold up the weights behind them.
  // The host is to have updated a block's moments by the time the pass is through with that block,
  // as its gradients leave then, so they are fetched at most kAhead blocks sooner: the time that
  // the last of the fetches take, which would be left over at the end.
  int32_t MomentsComeWith(BlockId block, BlockId after) const {
    constexpr int32_t kAhead = 4;
    const auto slots = static_cast<int32_t>(memory_.slots().size());
    const int32_t soonest = Index(after) - std::max<int32_t>(1, slots);
    if (slots == 0) return std::max(0, soonest);
    const int32_t visitors = static_cast<int32_t>(memory_.visitors().size());
    return std::clamp(Index(block) + std::min(kAhead, visitors), 0, std::max(0, soonest));
  }
  void FetchVisitingMoments(BlockId with) {
    if (end_ < shape_.micro_batches) return;
    for (const Visitor& visitor : visitors_) {
      if (visitor.with != Index(with)) continue;
      Emit(Lane::kCopyIn, FetchMoments{visitor.block, memory_.moments(visitor.block)});
    }
  }

  void HeadBackward() {
    ForEachMicroBatch([&](int32_t mb) {
      HeadLoss op = Loss(mb, Mode(mb));
      op.d_in = memory_.d(mb);
      op.gradients = memory_.sums(head_);
      op.head_gradients = memory_.sums(spec_.tied() ? BlockId{0} : head_);
      Emit(Lane::kCompute, op);
    });
    // No update can come before the whole loss is known.
    const bool last_round = end_ == shape_.micro_batches;
    if (last_round && policy_.update_time == UpdateTime::kWithBackward) {
      Emit(Lane::kHost, DecideUnclipped{});
    }
    EmitGradients(head_);
  }

  void Backward(BlockId block) {
    const int32_t index = Index(block);
    const BufferId weights = Weights(block);
    FetchVisitingMoments(block);
    if (first_ > 0 && SumsLeave(block)) {
      Emit(Lane::kCopyIn, FetchSums{block, memory_.sums(block), first_});
    }
    ForEachMicroBatch([&](int32_t mb) {
      FetchParts(block, mb);
      Emit(Lane::kCompute, BackwardBlock{.block = block,
                                         .micro_batch = mb,
                                         .saved = SavingOf(block).level,
                                         .weights = weights,
                                         .in = memory_.Input(index, mb, pass_),
                                         .attention = memory_.Attention(index, mb, pass_),
                                         .mlp = memory_.Mlp(index, mb, pass_),
                                         .d = memory_.d(mb),
                                         .gradients = memory_.sums(block),
                                         .scratch = memory_.scratch(),
                                         .accumulate = Mode(mb)});
    });
    EmitGradients(block);
  }

  void EmbeddingBackward() {
    FetchVisitingMoments(BlockId{0});
    ForEachMicroBatch([&](int32_t mb) {
      // A tied head has summed into the same table already.
      const Accumulate accumulate = spec_.tied() ? Accumulate::kAdd : Mode(mb);
      Emit(Lane::kCompute, EmbedBackward{mb, memory_.d(mb), memory_.sums(BlockId{0}),
                                         memory_.scratch(), accumulate});
    });
    EmitGradients(BlockId{0});
  }

  absl::StatusOr<StepProgram> Finish() {
    PENSTOCK_RETURN_IF_ERROR(memory_.Finish());
    DeriveOrder(program_);
    PENSTOCK_RETURN_IF_ERROR(Verify(program_));
    return std::move(program_);
  }

  const ModelSpec& spec_;
  const Policy& policy_;
  const ProgramShape& shape_;

  StepProgram program_;
  ProgramMemory memory_;
  const BlockId head_;
  const int32_t last_layer_;
  Pass pass_ = Pass::kForward;
  int32_t first_ = 0, end_ = 0;  // micro-batches of the current round
  BufferId head_weights_ = kNoBuffer;
  std::vector<bool> fetched_ = std::vector<bool>(spec_.num_blocks());
  std::optional<SlotTable> slots_;
  // Blocks whose moments come, and with the weights of which block of the last backward pass.
  struct Visitor {
    BlockId block;
    int32_t with;
  };
  std::vector<Visitor> visitors_;
};

}  // namespace

absl::StatusOr<StepProgram> BuildTrainProgram(const ModelSpec& spec, const ModelLayout& layout,
                                              const Policy& policy, const ProgramShape& shape) {
  PENSTOCK_RETURN_IF_ERROR(CheckPolicy(policy, spec, shape));
  return ProgramBuilder(spec, layout, policy, shape).Train();
}

absl::StatusOr<StepProgram> DraftTrainProgram(const ModelSpec& spec, const ModelLayout& layout,
                                              const Policy& policy, const ProgramShape& shape) {
  PENSTOCK_RETURN_IF_ERROR(CheckPolicy(policy, spec, shape));
  return ProgramBuilder(spec, layout, policy, shape).Draft();
}

absl::StatusOr<StepProgram> BuildEvaluationProgram(const ModelSpec& spec, const ModelLayout& layout,
                                                   const Policy& policy,
                                                   const ProgramShape& shape) {
  PENSTOCK_RETURN_IF_ERROR(CheckPolicy(policy, spec, shape));
  Policy one_round = policy;
  one_round.micro_batches_per_round = one_round.micro_batches_in_first_round = 0;
  one_round.first_savings.clear();
  return ProgramBuilder(spec, layout, one_round, shape).Evaluation();
}

absl::StatusOr<StepProgram> BuildLoadProgram(const ModelSpec& spec, const ModelLayout& layout,
                                             const Policy& policy, const ProgramShape& shape) {
  PENSTOCK_RETURN_IF_ERROR(CheckPolicy(policy, spec, shape));
  return ProgramBuilder(spec, layout, policy, shape).Load();
}

absl::StatusOr<StepProgram> BuildSettleProgram(const ModelSpec& spec, const ModelLayout& layout,
                                               const Policy& policy, const ProgramShape& shape,
                                               SettleGoal goal) {
  PENSTOCK_RETURN_IF_ERROR(CheckPolicy(policy, spec, shape));
  return ProgramBuilder(spec, layout, policy, shape).Settle(goal);
}

}  // namespace penstock
