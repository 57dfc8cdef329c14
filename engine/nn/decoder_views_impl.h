// Where Decoder's methods find parameters and tensors.
#pragma once

#include <algorithm>

#include "engine/nn/decoder.h"

namespace penstock {

template <typename P>
P* At(std::byte* buffer, TensorOffset offset) {
  return reinterpret_cast<P*>(buffer + offset);
}
template <typename P>
const P* At(const std::byte* buffer, TensorOffset offset) {
  return reinterpret_cast<const P*>(buffer + offset);
}

template <typename T, typename Context>
Decoder<T, Context>::Decoder(const ModelSpec& spec, const ModelLayout& layout,
                             const DecoderShape& shape, const float* rope_table,
                             int64_t rope_positions)
    : spec_(spec),
      block_layout_(layout.blocks[1]),
      attention_(MakeAttentionTensors(spec, shape.tokens_per_micro_batch, sizeof(T))),
      mlp_(MakeMlpTensors(spec, shape.tokens_per_micro_batch, sizeof(T))),
      scratch_(MakeBlockScratch(spec, shape.tokens_per_micro_batch, sizeof(T),
                                shape.kernel_scratch_bytes)),
      head_scratch_(MakeHeadScratch(
          spec, std::min(shape.head_chunk_rows, shape.tokens_per_micro_batch), sizeof(T))),
      head_chunk_rows_(std::min(shape.head_chunk_rows, shape.tokens_per_micro_batch)),
      kernel_scratch_bytes_(shape.kernel_scratch_bytes),
      rope_table_(rope_table),
      rope_positions_(rope_positions) {}

template <typename T, typename Context>
template <typename P>
P* Decoder<T, Context>::Find(P* block, Role role) const {
  const Parameter* parameter = block_layout_.Find(role);
  return parameter == nullptr ? nullptr : block + parameter->offset;
}

template <typename T, typename Context>
typename Decoder<T, Context>::QkView Decoder<T, Context>::Qk(std::byte* attention) const {
  if (qk_norm()) {
    T* q = At<T>(attention, attention_.qk);
    return {q, q + spec_.q_size(), spec_.q_size() + spec_.kv_size()};
  }
  T* q = At<T>(attention, attention_.qkv);
  return {q, q + spec_.q_size(), spec_.q_size() + 2 * spec_.kv_size()};
}

}  // namespace penstock
