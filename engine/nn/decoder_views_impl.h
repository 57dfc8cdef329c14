// Where Decoder's methods find parameters and tensors.
#pragma once

#include <algorithm>

#include "engine/base/status.h"
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
      scratch_(MakeBlockScratch(spec, shape.tokens_per_micro_batch,
                                MlpChunkRows(shape.mlp_chunk_rows, shape.tokens_per_micro_batch),
                                sizeof(T), shape.kernel_scratch_bytes)),
      head_scratch_(MakeHeadScratch(
          spec, std::min(shape.head_chunk_rows, shape.tokens_per_micro_batch), sizeof(T))),
      head_chunk_rows_(std::min(shape.head_chunk_rows, shape.tokens_per_micro_batch)),
      mlp_chunk_rows_(MlpChunkRows(shape.mlp_chunk_rows, shape.tokens_per_micro_batch)),
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
absl::Status Decoder<T, Context>::Rotate(Context& context, const MicroBatchView& batch,
                                         RopeDirection direction, T* qkv) const {
  return Rope(context, RopeArgs<T>{.x = qkv,
                                   .stride = spec_.q_size() + 2 * spec_.kv_size(),
                                   .rows = batch.tokens,
                                   .heads = spec_.num_heads + spec_.num_kv_heads,
                                   .head_dim = spec_.head_dim,
                                   .positions = batch.positions,
                                   .table = rope_table_,
                                   .max_positions = rope_positions_,
                                   .direction = direction});
}

template <typename T, typename Context>
template <typename Body>
absl::Status Decoder<T, Context>::ForEachMlpChunk(int64_t tokens, const std::byte* attention,
                                                  std::byte* mlp, SaveLevel saved,
                                                  const Body& body) const {
  const T* middle = At<T>(attention, attention_.middle);
  T* gate_up = At<T>(mlp, mlp_.gate_up);
  for (int64_t row = 0; row < tokens; row += mlp_chunk_rows_) {
    const int64_t place = saved == SaveLevel::kAll ? row : 0;
    PENSTOCK_RETURN_IF_ERROR(
        body(MlpChunk{.row = row,
                      .rows = std::min(mlp_chunk_rows_, tokens - row),
                      .middle = middle + row * spec_.hidden_size,
                      .gate_up = gate_up + place * 2 * spec_.intermediate_size}));
  }
  return absl::OkStatus();
}

}  // namespace penstock
