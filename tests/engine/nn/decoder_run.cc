#include "tests/engine/nn/decoder_run.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/kernels/rope.h"
#include "engine/model/layout.h"
#include "engine/model/model_spec.h"
#include "engine/model/rope.h"
#include "engine/nn/decoder.h"
#include "engine/nn/kernel_scratch.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;
using Block = std::vector<float>;

// Every bit set: not a number, as floats. What is read before it was written, or added to
// instead of overwritten, spoils the result.
constexpr std::byte kUnwritten{0xff};

// Behind the bytes of a buffer: stays unwritten.
constexpr int64_t kGuardBytes = 1024;

Bytes GuardedBuffer(int64_t bytes) { return Bytes(bytes + kGuardBytes, kUnwritten); }

absl::Status CheckGuard(const Bytes& buffer) {
  const bool whole = std::all_of(buffer.end() - kGuardBytes, buffer.end(),
                                 [](std::byte value) { return value == kUnwritten; });
  return whole ? absl::OkStatus() : absl::InternalError("a write beyond a buffer's end");
}

Block UnwrittenBlock(int64_t size) { return Block(size, std::numeric_limits<float>::quiet_NaN()); }

// The weights of `layout`, each from the tensor of its name. Every tensor must be used.
absl::StatusOr<std::vector<Block>> ArrangeWeights(const ReferenceCase& reference,
                                                  const ModelLayout& layout) {
  std::vector<Block> blocks;
  size_t used = 0;
  for (const BlockLayout& block : layout.blocks) {
    Block& weights = blocks.emplace_back(block.size);
    for (const Parameter& parameter : block.parameters) {
      const auto tensor = reference.weights.find(parameter.name);
      if (tensor == reference.weights.end() ||
          static_cast<int64_t>(tensor->second.size()) != parameter.size) {
        return absl::InvalidArgumentError(absl::StrCat(parameter.name, " is missing or misshapen"));
      }
      std::copy(tensor->second.begin(), tensor->second.end(), weights.begin() + parameter.offset);
      ++used;
    }
  }
  if (used != reference.weights.size()) return absl::InvalidArgumentError("a tensor is left over");
  return blocks;
}

class DecoderRun {
 public:
  DecoderRun(const ReferenceCase& reference, const ModelSpec& spec, std::vector<Block> weights,
             const DecoderCut& cut);

  absl::StatusOr<DecoderResult> Run();

 private:
  absl::Status Forward();
  absl::Status Logits();
  absl::Status HeadLoss();
  // Between the passes: what `saved` does not keep.
  void Forget();
  absl::Status Backward();
  absl::Status CheckGuards() const;
  // Nothing outlives an op there.
  std::byte* FreshScratch();
  HeadLossArgs<float> HeadArgs();

  const ReferenceCase& reference_;
  const ModelSpec spec_;
  const ModelLayout layout_ = MakeLayout(spec_);
  const int64_t tokens_ = reference_.tokens();
  const DecoderCut cut_;
  const int64_t head_chunk_rows_;

  ThreadPool pool_{1};
  cpu::Context context_{&pool_};
  const int64_t kernel_bytes_ = CpuKernelScratchBytes(context_.pool->size());
  std::vector<float> rope_table_;
  const Decoder<float, cpu::Context> decoder_;
  MicroBatchView batch_;

  std::vector<Block> weights_, gradients_;       // by block
  std::vector<std::vector<float>> activations_;  // input of each decoder layer, then of the head
  std::vector<Bytes> attention_, mlp_;           // by layer
  std::vector<float> d_;
  Bytes block_scratch_, head_scratch_;
  DecoderResult result_;
};

DecoderRun::DecoderRun(const ReferenceCase& reference, const ModelSpec& spec,
                       std::vector<Block> weights, const DecoderCut& cut)
    : reference_(reference),
      spec_(spec),
      cut_(cut),
      head_chunk_rows_(std::min(cut.head_chunk_rows, reference.tokens())),
      rope_table_(tokens_ * spec_.head_dim),
      decoder_(spec_, layout_,
               {.tokens_per_micro_batch = tokens_,
                .head_chunk_rows = head_chunk_rows_,
                .mlp_chunk_rows = cut.mlp_chunk_rows,
                .kernel_scratch_bytes = kernel_bytes_},
               rope_table_.data(), tokens_),
      weights_(std::move(weights)) {
  FillRopeTable(RopeInverseFrequencies(spec_.rope, spec_.head_dim), tokens_, rope_table_.data());
  batch_ = {.ids = reference_.ids.data(),
            .positions = reference_.position_ids.data(),
            .labels = reference_.labels.data(),
            .document_starts = reference_.document_starts.data(),
            .num_documents = static_cast<int64_t>(reference_.document_starts.size()) - 1,
            .tokens = tokens_};
  for (const BlockLayout& block : layout_.blocks) {
    gradients_.push_back(UnwrittenBlock(block.size));
  }
  activations_.assign(spec_.num_layers + 1, UnwrittenBlock(tokens_ * spec_.hidden_size));
  d_ = UnwrittenBlock(tokens_ * spec_.hidden_size);
  attention_.assign(spec_.num_layers,
                    GuardedBuffer(MakeAttentionTensors(spec_, tokens_, sizeof(float)).bytes));
  const int64_t chunk_rows = MlpChunkRows(cut.mlp_chunk_rows, tokens_);
  const int64_t mlp_rows = cut.saved == SaveLevel::kAll ? tokens_ : chunk_rows;
  mlp_.assign(spec_.num_layers,
              GuardedBuffer(MakeMlpTensors(spec_, mlp_rows, sizeof(float)).bytes));
  block_scratch_ = GuardedBuffer(
      MakeBlockScratch(spec_, tokens_, chunk_rows, sizeof(float), kernel_bytes_).bytes);
  head_scratch_.resize(MakeHeadScratch(spec_, head_chunk_rows_, sizeof(float)).bytes, kUnwritten);
}

absl::StatusOr<DecoderResult> DecoderRun::Run() {
  PENSTOCK_RETURN_IF_ERROR(Forward());
  PENSTOCK_RETURN_IF_ERROR(Logits());
  PENSTOCK_RETURN_IF_ERROR(HeadLoss());
  Forget();
  PENSTOCK_RETURN_IF_ERROR(Backward());
  PENSTOCK_RETURN_IF_ERROR(CheckGuards());
  for (size_t b = 0; b < gradients_.size(); ++b) {
    for (const Parameter& parameter : layout_.blocks[b].parameters) {
      const float* begin = gradients_[b].data() + parameter.offset;
      result_.gradients[parameter.name].assign(begin, begin + parameter.size);
    }
  }
  return std::move(result_);
}

absl::Status DecoderRun::Forward() {
  PENSTOCK_RETURN_IF_ERROR(
      decoder_.Embed(context_, batch_, weights_[0].data(), activations_[0].data()));
  for (int64_t layer = 0; layer < spec_.num_layers; ++layer) {
    PENSTOCK_RETURN_IF_ERROR(decoder_.Forward(context_, layer, batch_,
                                              {.weights = weights_[layer + 1].data(),
                                               .in = activations_[layer].data(),
                                               .out = activations_[layer + 1].data(),
                                               .attention = attention_[layer].data(),
                                               .mlp = mlp_[layer].data(),
                                               .saved = cut_.saved,
                                               .scratch = FreshScratch()}));
  }
  return absl::OkStatus();
}

HeadLossArgs<float> DecoderRun::HeadArgs() {
  const size_t matrix_block = spec_.tied() ? 0 : layout_.blocks.size() - 1;
  const Role matrix = spec_.tied() ? Role::kEmbedding : Role::kHeadWeight;
  const int64_t matrix_offset = layout_.blocks[matrix_block].OffsetOf(matrix);
  return {
      .weights = weights_.back().data(),
      .head_weights = weights_[matrix_block].data() + matrix_offset,
      .in = activations_.back().data(),
      .d_in = d_.data(),
      .norm_gradient = gradients_.back().data() + layout_.blocks.back().OffsetOf(Role::kFinalNorm),
      .head_gradient = gradients_[matrix_block].data() + matrix_offset,
      .mode = WriteMode::kOverwrite,
      .gradient_scale = 0,
      .loss_sum = nullptr,
      .labelled_tokens = nullptr,
      .scratch = head_scratch_.data()};
}

absl::Status DecoderRun::Logits() {
  const HeadLossArgs<float> args = HeadArgs();
  for (int64_t row = 0; row < tokens_; row += head_chunk_rows_) {
    const int64_t rows = std::min(head_chunk_rows_, tokens_ - row);
    PENSTOCK_RETURN_IF_ERROR(decoder_.Logits(context_, args, row, rows));
    const float* logits =
        reinterpret_cast<const float*>(head_scratch_.data() + decoder_.head_scratch().logits);
    result_.logits.insert(result_.logits.end(), logits, logits + rows * spec_.vocab_size);
  }
  return absl::OkStatus();
}

absl::Status DecoderRun::HeadLoss() {
  const int64_t labelled =
      tokens_ - std::count(reference_.labels.begin(), reference_.labels.end(), kIgnoreLabel);
  double loss_sum = 0;
  int64_t counted = 0;
  HeadLossArgs<float> args = HeadArgs();
  args.gradient_scale = 1.0f / static_cast<float>(labelled);
  args.loss_sum = &loss_sum;
  args.labelled_tokens = &counted;
  PENSTOCK_RETURN_IF_ERROR(decoder_.HeadLoss(context_, batch_, args));
  if (counted != labelled) {
    return absl::InternalError(absl::StrCat(counted, " labels counted of ", labelled));
  }
  result_.loss = loss_sum / static_cast<double>(labelled);
  return absl::OkStatus();
}

void DecoderRun::Forget() {
  const auto clear = [](std::vector<Bytes>& buffers) {
    for (Bytes& buffer : buffers) std::fill(buffer.begin(), buffer.end(), kUnwritten);
  };
  if (cut_.saved != SaveLevel::kAll) clear(mlp_);
  if (cut_.saved == SaveLevel::kInput) clear(attention_);
}

absl::Status DecoderRun::CheckGuards() const {
  PENSTOCK_RETURN_IF_ERROR(CheckGuard(block_scratch_));
  for (int64_t layer = 0; layer < spec_.num_layers; ++layer) {
    PENSTOCK_RETURN_IF_ERROR(CheckGuard(attention_[layer]));
    PENSTOCK_RETURN_IF_ERROR(CheckGuard(mlp_[layer]));
  }
  return absl::OkStatus();
}

std::byte* DecoderRun::FreshScratch() {
  std::fill(block_scratch_.begin(), block_scratch_.end() - kGuardBytes, kUnwritten);
  return block_scratch_.data();
}

absl::Status DecoderRun::Backward() {
  for (int64_t layer = spec_.num_layers - 1; layer >= 0; --layer) {
    PENSTOCK_RETURN_IF_ERROR(decoder_.Backward(context_, layer, batch_,
                                               {.weights = weights_[layer + 1].data(),
                                                .in = activations_[layer].data(),
                                                .attention = attention_[layer].data(),
                                                .mlp = mlp_[layer].data(),
                                                .saved = cut_.saved,
                                                .d = d_.data(),
                                                .gradients = gradients_[layer + 1].data(),
                                                .mode = WriteMode::kOverwrite,
                                                .scratch = FreshScratch()}));
  }
  // The head has written its part of a tied table's gradient.
  return decoder_.EmbedBackward(context_, batch_, d_.data(), gradients_[0].data(),
                                spec_.tied() ? WriteMode::kAdd : WriteMode::kOverwrite,
                                FreshScratch());
}

}  // namespace

absl::StatusOr<DecoderResult> RunDecoder(const ReferenceCase& reference, const DecoderCut& cut) {
  PENSTOCK_ASSIGN_OR_RETURN(const ModelSpec spec, ParseModelConfig(reference.config_json));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<Block> weights,
                            ArrangeWeights(reference, MakeLayout(spec)));
  return DecoderRun(reference, spec, std::move(weights), cut).Run();
}

}  // namespace penstock
