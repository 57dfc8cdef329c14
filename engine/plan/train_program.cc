#include "engine/plan/train_program.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "engine/plan/activations.h"
#include "engine/plan/hazards.h"
#include "engine/plan/verify.h"

namespace penstock {
namespace {

constexpr int64_t kBufferAlignment = 4096;

// Which decoder block each slot holds while the program is being written.
class SlotTable {
 public:
  // `uses`: the blocks in the order in which they will be asked for.
  SlotTable(std::vector<BufferId> slots, std::vector<int32_t> uses)
      : slots_(std::move(slots)),
        held_(slots_.size(), -1),
        last_use_(slots_.size(), -1),
        uses_(std::move(uses)) {}

  struct Place {
    BufferId slot;
    bool fetch;  // false: the block is there already
  };

  // The slot for the next block of `uses`, which is `block`.
  Place Next(int32_t block) {
    ++position_;
    const auto found = std::find(held_.begin(), held_.end(), block);
    const bool fetch = found == held_.end();
    const size_t slot = fetch ? Victim() : static_cast<size_t>(found - held_.begin());
    held_[slot] = block;
    last_use_[slot] = position_;
    return {slots_[slot], fetch};
  }

 private:
  // The slot whose block is needed again last. Of several that are not needed again, the one that
  // was used longest ago: the latest is still being computed with, and a fetch would wait for it.
  size_t Victim() const {
    size_t victim = 0;
    for (size_t slot = 1; slot < slots_.size(); ++slot) {
      const int64_t next = NextUse(held_[slot]), best = NextUse(held_[victim]);
      if (next > best || (next == best && last_use_[slot] < last_use_[victim])) victim = slot;
    }
    return victim;
  }

  int64_t NextUse(int32_t block) const {
    const auto found = std::find(uses_.begin() + position_, uses_.end(), block);
    return block < 0 ? INT64_MAX : found - uses_.begin();
  }

  std::vector<BufferId> slots_;
  std::vector<int32_t> held_;      // block by slot, -1: nothing
  std::vector<int64_t> last_use_;  // position by slot
  std::vector<int32_t> uses_;
  int64_t position_ = 0;
};

class ProgramBuilder {
 public:
  ProgramBuilder(const ModelSpec& spec, const ModelLayout& layout, const Policy& policy,
                 const ProgramShape& shape)
      : spec_(spec), layout_(layout), policy_(policy), shape_(shape) {
    program_.num_blocks = static_cast<int32_t>(spec.num_blocks());
    program_.micro_batches = shape.micro_batches;
    head_block_ = BlockId{program_.num_blocks - 1};
    last_layer_ = static_cast<int32_t>(spec.num_layers);
  }

  absl::StatusOr<StepProgram> Train() {
    AllocateCommon();
    AllocateForTraining();
    Forward(/*keep=*/true);
    HeadBackward();
    for (int32_t block = last_layer_; block >= 1; --block) Backward(BlockId{block});
    EmbeddingBackward();
    Emit(Lane::kHost, ClipScale{});
    // The order in which the next forward needs the weights.
    for (int32_t block = 0; block < program_.num_blocks; ++block) {
      Emit(Lane::kHost, UpdateHost{BlockId{block}});
    }
    return Finish();
  }

  absl::StatusOr<StepProgram> Evaluation() {
    AllocateCommon();
    Forward(/*keep=*/false);
    for (int32_t mb = 0; mb < shape_.micro_batches; ++mb) {
      Emit(Lane::kCompute, Loss(mb, Accumulate::kOverwrite));
    }
    return Finish();
  }

 private:
  int64_t ActivationBytes() const {
    return shape_.tokens_per_micro_batch * spec_.hidden_size * shape_.element_bytes;
  }
  int64_t WeightBytes(BlockId block) const {
    return layout_.blocks[Index(block)].size * shape_.element_bytes;
  }
  int64_t GradientBytes(BlockId block) const { return layout_.blocks[Index(block)].size * 4; }

  BufferId Allocate(std::string name, BufferClass buffer_class, int64_t bytes) {
    const BufferId id{static_cast<int32_t>(program_.buffers.size())};
    program_.buffers.push_back({std::move(name), buffer_class, end_, bytes});
    end_ += RoundUp(bytes, kBufferAlignment);
    return id;
  }

  void Emit(Lane lane, OpBody body) { program_.ops.push_back({lane, {}, std::move(body)}); }

  void AllocateCommon() {
    embedding_weights_ = Allocate("embedding", BufferClass::kWeights, WeightBytes(BlockId{0}));
    head_weights_ = Allocate("head", BufferClass::kWeights, WeightBytes(head_block_));
    const int64_t slot_bytes = layout_.max_decoder_block_size * shape_.element_bytes;
    const int64_t slots = std::min<int64_t>(policy_.decoder_slots, spec_.num_layers);
    for (int64_t slot = 0; slot < slots; ++slot) {
      slots_.push_back(Allocate(absl::StrCat("slot", slot), BufferClass::kWeights, slot_bytes));
    }
    const int64_t tokens = shape_.tokens_per_micro_batch, element = shape_.element_bytes;
    attention_bytes_ = MakeAttentionTensors(spec_, tokens, element).bytes;
    mlp_bytes_ = MakeMlpTensors(spec_, tokens, element).bytes;
    scratch_ = Allocate(
        "scratch", BufferClass::kScratch,
        MakeBlockScratch(spec_, tokens, tokens, element, shape_.kernel_scratch_bytes).bytes);
    const int64_t chunk = std::min(policy_.head_chunk_rows, tokens);
    head_scratch_ = Allocate("logits_chunk", BufferClass::kScratch,
                             MakeHeadScratch(spec_, chunk, element).bytes);
  }

  void AllocateForTraining() {
    head_gradients_ = Allocate("d_head", BufferClass::kGradient, GradientBytes(head_block_));
    embedding_gradients_ =
        Allocate("d_embedding", BufferClass::kGradient, GradientBytes(BlockId{0}));
    // Two, so that one leaves for the host while the next layer's is summed.
    for (BufferId& sums : layer_gradients_) {
      sums = Allocate(absl::StrCat("d_layer", &sums - layer_gradients_), BufferClass::kGradient,
                      layout_.max_decoder_block_size * 4);
    }
    for (int32_t mb = 0; mb < shape_.micro_batches; ++mb) {
      d_.push_back(
          Allocate(absl::StrCat("d[", mb, "]"), BufferClass::kActivation, ActivationBytes()));
    }
  }

  // The buffer of the input of `block` for `mb`. Training keeps every layer's input; evaluation
  // needs two that take turns.
  BufferId Input(int32_t block, int32_t mb, bool keep) {
    const int32_t key = keep ? block : block % 2;
    const auto [entry, fresh] = inputs_.try_emplace({key, mb}, kNoBuffer);
    if (fresh) {
      entry->second = Allocate(absl::StrCat("x", key, "[", mb, "]"), BufferClass::kActivation,
                               ActivationBytes());
    }
    return entry->second;
  }

  // Where the intermediate tensors of (block, mb) go: kept, or one shared place.
  BufferId Tensors(const char* name, int64_t bytes, int32_t block, int32_t mb, bool keep) {
    const std::string full =
        keep ? absl::StrCat(name, block, "[", mb, "]") : absl::StrCat(name, "_shared");
    const auto [entry, fresh] = tensors_.try_emplace(full, kNoBuffer);
    if (fresh) {
      entry->second = Allocate(full, keep ? BufferClass::kSaved : BufferClass::kScratch, bytes);
    }
    return entry->second;
  }
  BufferId Attention(int32_t block, int32_t mb, bool keep) {
    return Tensors("attention", attention_bytes_, block, mb,
                   keep && policy_.save_level != SaveLevel::kInput);
  }
  BufferId Mlp(int32_t block, int32_t mb, bool keep) {
    return Tensors("mlp", mlp_bytes_, block, mb, keep && policy_.save_level == SaveLevel::kAll);
  }

  BufferId FetchLayer(BlockId block) {
    const SlotTable::Place place = table_->Next(Index(block));
    if (place.fetch) Emit(Lane::kCopyIn, FetchWeights{block, place.slot});
    return place.slot;
  }

  void Forward(bool keep) {
    std::vector<int32_t> uses;
    for (int32_t block = 1; block <= last_layer_; ++block) uses.push_back(block);
    if (keep) uses.insert(uses.end(), uses.rbegin(), uses.rend());
    table_.emplace(slots_, std::move(uses));

    Emit(Lane::kCopyIn, FetchWeights{BlockId{0}, embedding_weights_});
    for (int32_t mb = 0; mb < shape_.micro_batches; ++mb) {
      Emit(Lane::kCompute, EmbedForward{mb, embedding_weights_, Input(1, mb, keep)});
    }
    for (int32_t block = 1; block <= last_layer_; ++block) {
      const BufferId weights = FetchLayer(BlockId{block});
      for (int32_t mb = 0; mb < shape_.micro_batches; ++mb) {
        Emit(Lane::kCompute, ForwardBlock{.block = BlockId{block},
                                          .micro_batch = mb,
                                          .weights = weights,
                                          .in = Input(block, mb, keep),
                                          .out = Input(block + 1, mb, keep),
                                          .attention = Attention(block, mb, keep),
                                          .mlp = Mlp(block, mb, keep),
                                          .scratch = scratch_});
      }
    }
    Emit(Lane::kCopyIn, FetchWeights{head_block_, head_weights_});
    keeps_ = keep;
  }

  HeadLoss Loss(int32_t mb, Accumulate accumulate) {
    return {.block = head_block_,
            .micro_batch = mb,
            .weights = head_weights_,
            .head_weights = spec_.tied() ? embedding_weights_ : head_weights_,
            .in = Input(last_layer_ + 1, mb, keeps_),
            .d_in = kNoBuffer,
            .gradients = kNoBuffer,
            .head_gradients = kNoBuffer,
            .scratch = head_scratch_,
            .accumulate = accumulate};
  }

  static Accumulate Mode(int32_t mb) { return mb == 0 ? Accumulate::kOverwrite : Accumulate::kAdd; }

  // The sums are complete: their norm counts, and they leave for the host.
  void EmitGradients(BlockId block, BufferId gradients) {
    Emit(Lane::kCompute, ReduceNorm{block, gradients});
    Emit(Lane::kCopyOut, StoreGradients{block, gradients});
  }

  void HeadBackward() {
    for (int32_t mb = 0; mb < shape_.micro_batches; ++mb) {
      HeadLoss op = Loss(mb, Mode(mb));
      op.d_in = d_[mb];
      op.gradients = head_gradients_;
      op.head_gradients = spec_.tied() ? embedding_gradients_ : head_gradients_;
      Emit(Lane::kCompute, op);
    }
    EmitGradients(head_block_, head_gradients_);
  }

  void Backward(BlockId block) {
    const int32_t index = Index(block);
    const BufferId weights = FetchLayer(block);
    const BufferId gradients = layer_gradients_[index % 2];
    for (int32_t mb = 0; mb < shape_.micro_batches; ++mb) {
      Emit(Lane::kCompute, BackwardBlock{.block = block,
                                         .micro_batch = mb,
                                         .saved = policy_.save_level,
                                         .weights = weights,
                                         .in = Input(index, mb, /*keep=*/true),
                                         .attention = Attention(index, mb, /*keep=*/true),
                                         .mlp = Mlp(index, mb, /*keep=*/true),
                                         .d = d_[mb],
                                         .gradients = gradients,
                                         .scratch = scratch_,
                                         .accumulate = Mode(mb)});
    }
    EmitGradients(block, gradients);
  }

  void EmbeddingBackward() {
    for (int32_t mb = 0; mb < shape_.micro_batches; ++mb) {
      // A tied head has summed into the same table already.
      const Accumulate accumulate = spec_.tied() ? Accumulate::kAdd : Mode(mb);
      Emit(Lane::kCompute, EmbedBackward{mb, d_[mb], embedding_gradients_, scratch_, accumulate});
    }
    EmitGradients(BlockId{0}, embedding_gradients_);
  }

  absl::StatusOr<StepProgram> Finish() {
    program_.arena_bytes = shape_.arena_budget_bytes > 0 ? shape_.arena_budget_bytes : end_;
    if (end_ > program_.arena_bytes) return OverBudget();
    DeriveOrder(program_);
    PENSTOCK_RETURN_IF_ERROR(Verify(program_));
    return std::move(program_);
  }

  absl::Status OverBudget() const {
    std::map<BufferClass, int64_t> by_class;
    for (const Buffer& buffer : program_.buffers) by_class[buffer.buffer_class] += buffer.bytes;
    std::string parts;
    for (const auto& [buffer_class, bytes] : by_class) {
      absl::StrAppend(&parts, parts.empty() ? "" : ", ", BufferClassName(buffer_class), " ",
                      FormatBytes(bytes));
    }
    return Error(absl::StatusCode::kResourceExhausted, reason::kDeviceMemoryInsufficient,
                 absl::StrCat("a step needs ", FormatBytes(end_), " of device memory (", parts,
                              "), ", FormatBytes(program_.arena_bytes),
                              " may be used; lower batch.micro_batch_tokens or save less "
                              "(batch.activation_checkpointing)"),
                 {{"needed_bytes", absl::StrCat(end_)},
                  {"usable_bytes", absl::StrCat(program_.arena_bytes)}});
  }

  const ModelSpec& spec_;
  const ModelLayout& layout_;
  const Policy& policy_;
  const ProgramShape& shape_;

  StepProgram program_;
  int64_t end_ = 0;
  BlockId head_block_{};
  int32_t last_layer_ = 0;
  bool keeps_ = false;

  BufferId embedding_weights_{}, head_weights_{}, scratch_{}, head_scratch_{};
  BufferId head_gradients_{}, embedding_gradients_{};
  BufferId layer_gradients_[2] = {};
  std::vector<BufferId> slots_, d_;
  std::map<std::pair<int32_t, int32_t>, BufferId> inputs_;
  std::map<std::string, BufferId> tensors_;
  std::optional<SlotTable> table_;
  int64_t attention_bytes_ = 0, mlp_bytes_ = 0;
};

absl::Status CheckShape(const Policy& policy, const ProgramShape& shape) {
  if (shape.micro_batches >= 1 && shape.tokens_per_micro_batch >= 1 && policy.decoder_slots >= 1 &&
      policy.head_chunk_rows >= 1) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
               "micro-batches, tokens, slots and chunk rows must be positive");
}

}  // namespace

absl::StatusOr<StepProgram> BuildTrainProgram(const ModelSpec& spec, const ModelLayout& layout,
                                              const Policy& policy, const ProgramShape& shape) {
  PENSTOCK_RETURN_IF_ERROR(CheckShape(policy, shape));
  return ProgramBuilder(spec, layout, policy, shape).Train();
}

absl::StatusOr<StepProgram> BuildEvaluationProgram(const ModelSpec& spec, const ModelLayout& layout,
                                                   const Policy& policy,
                                                   const ProgramShape& shape) {
  PENSTOCK_RETURN_IF_ERROR(CheckShape(policy, shape));
  return ProgramBuilder(spec, layout, policy, shape).Evaluation();
}

}  // namespace penstock
