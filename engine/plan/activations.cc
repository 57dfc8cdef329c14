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
  tensors.qkv = placer.Place(row * (spec.q_size() + 2 * spec.kv_size()));
  tensors.raw_qk = qk_norm ? placer.Place(row * (spec.q_size() + spec.kv_size())) : -1;
  tensors.q_rstd = qk_norm ? placer.Place(tokens * spec.num_heads * kFloat) : -1;
  tensors.k_rstd = qk_norm ? placer.Place(tokens * spec.num_kv_heads * kFloat) : -1;
  tensors.attention = placer.Place(row * spec.q_size());
  tensors.lse = placer.Place(tokens * spec.num_heads * kFloat);
  tensors.middle = placer.Place(row * spec.hidden_size);
  tensors.bytes = placer.end();
  return tensors;
}

MlpTensors MakeMlpTensors(const ModelSpec& spec, int64_t rows, int64_t element_bytes) {
  Placer placer;
  MlpTensors tensors;
  tensors.gate_up = placer.Place(rows * element_bytes * 2 * spec.intermediate_size);
  tensors.bytes = placer.end();
  return tensors;
}

BlockScratch MakeBlockScratch(const ModelSpec& spec, int64_t tokens, int64_t mlp_rows,
                              int64_t element_bytes, int64_t kernel_bytes) {
  BlockScratch scratch;
  // Forward needs the norm before the product. Backward needs the product before the norm, which
  // it computes again.
  Placer norm, product;
  scratch.post_rstd = norm.Place(mlp_rows * kFloat);
  scratch.post_norm = norm.Place(mlp_rows * element_bytes * spec.hidden_size);
  scratch.product = product.Place(mlp_rows * element_bytes * spec.intermediate_size);

  const int64_t row = tokens * element_bytes;
  Placer attention;
  scratch.d_qkv = attention.Place(row * (spec.q_size() + 2 * spec.kv_size()));
  // Likewise: forward norms before it attends, backward after.
  Placer input(attention.end());
  scratch.input_rstd = input.Place(tokens * kFloat);
  scratch.input_norm = input.Place(row * spec.hidden_size);
  scratch.d_attention = attention.Place(row * spec.q_size());
  scratch.kernel = attention.Place(kernel_bytes);
  scratch.bytes = std::max({norm.end(), product.end(), input.end(), attention.end()});
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
