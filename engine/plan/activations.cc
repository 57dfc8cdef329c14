#include "engine/plan/activations.h"

#include <algorithm>

namespace penstock {
namespace {

constexpr int64_t kTensorAlignment = 256;

// Places tensors one after the other.
class Placer {
 public:
  explicit Placer(int64_t start = 0) : end_(start) {}
  TensorOffset Place(int64_t bytes) {
    const TensorOffset offset = end_;
    end_ += RoundUp(bytes, kTensorAlignment);
    return offset;
  }
  int64_t end() const { return end_; }

 private:
  int64_t end_;
};

constexpr int64_t kFloat = 4;

}  // namespace

AttentionTensors MakeAttentionTensors(const ModelSpec& spec, int64_t tokens,
                                      int64_t element_bytes) {
  const int64_t row = tokens * element_bytes;
  const bool qk_norm = spec.qk_norm == QkNorm::kPerHead;
  Placer placer;
  AttentionTensors tensors;
  tensors.input_rstd = placer.Place(tokens * kFloat);
  tensors.input_norm = placer.Place(row * spec.hidden_size);
  tensors.qkv = placer.Place(row * (spec.q_size() + 2 * spec.kv_size()));
  tensors.qk = qk_norm ? placer.Place(row * (spec.q_size() + spec.kv_size())) : -1;
  tensors.q_rstd = qk_norm ? placer.Place(tokens * spec.num_heads * kFloat) : -1;
  tensors.k_rstd = qk_norm ? placer.Place(tokens * spec.num_kv_heads * kFloat) : -1;
  tensors.attention = placer.Place(row * spec.q_size());
  tensors.lse = placer.Place(tokens * spec.num_heads * kFloat);
  tensors.middle = placer.Place(row * spec.hidden_size);
  tensors.bytes = placer.end();
  return tensors;
}

MlpTensors MakeMlpTensors(const ModelSpec& spec, int64_t tokens, int64_t element_bytes) {
  const int64_t row = tokens * element_bytes;
  Placer placer;
  MlpTensors tensors;
  tensors.post_rstd = placer.Place(tokens * kFloat);
  tensors.post_norm = placer.Place(row * spec.hidden_size);
  tensors.gate_up = placer.Place(row * 2 * spec.intermediate_size);
  tensors.product = placer.Place(row * spec.intermediate_size);
  tensors.bytes = placer.end();
  return tensors;
}

BlockScratch MakeBlockScratch(const ModelSpec& spec, int64_t tokens, int64_t element_bytes,
                              int64_t kernel_bytes) {
  const int64_t row = tokens * element_bytes;
  BlockScratch scratch;
  Placer shared;
  scratch.d_norm = shared.Place(row * spec.hidden_size);
  Placer mlp(shared.end());
  scratch.d_product = mlp.Place(row * spec.intermediate_size);
  scratch.d_gate_up = mlp.Place(row * 2 * spec.intermediate_size);
  Placer attention(shared.end());
  scratch.d_attention = attention.Place(row * spec.q_size());
  scratch.d_qkv = attention.Place(row * (spec.q_size() + 2 * spec.kv_size()));
  scratch.kernel = attention.Place(kernel_bytes);
  scratch.bytes = std::max(mlp.end(), attention.end());
  return scratch;
}

HeadScratch MakeHeadScratch(const ModelSpec& spec, int64_t rows, int64_t element_bytes) {
  const int64_t row = rows * element_bytes;
  Placer placer;
  HeadScratch scratch;
  scratch.rstd = placer.Place(rows * kFloat);
  scratch.norm = placer.Place(row * spec.hidden_size);
  scratch.d_norm = placer.Place(row * spec.hidden_size);
  scratch.logits = placer.Place(row * spec.vocab_size);
  scratch.bytes = placer.end();
  return scratch;
}

}  // namespace penstock
