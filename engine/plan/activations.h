// The tensors inside a decoder block's buffers, for one micro-batch of T tokens. One table for
// the planner, which needs their bytes, and for engine/nn, which needs their places.
//
//   x [T,H] -> input norm -> q,k,v -> (q/k norm) -> rope -> attention -> o_proj, + x = middle
//   middle  -> post norm  -> gate,up -> silu(gate)*up -> down_proj, + middle = out
#pragma once

#include <cstdint>

#include "engine/base/units.h"
#include "engine/model/model_spec.h"

namespace penstock {

// Byte offset of a tensor in its buffer; -1 if the family has no such tensor.
using TensorOffset = int64_t;

// Kept from ForwardBlock for BackwardBlock, or computed again.
struct AttentionTensors {
  TensorOffset input_rstd;  // f32 [T]
  TensorOffset input_norm;  // [T, H]
  TensorOffset qkv;         // [T, q+2kv]; without q/k norm q and k are rotated in place
  TensorOffset qk;          // [T, q+kv], normed and rotated; only with q/k norm
  TensorOffset q_rstd;      // f32 [T, heads]; likewise
  TensorOffset k_rstd;      // f32 [T, kv heads]; likewise
  TensorOffset attention;   // [T, q]
  TensorOffset lse;         // f32 [T, heads]
  TensorOffset middle;      // [T, H]
  int64_t bytes;
};

struct MlpTensors {
  TensorOffset post_rstd;  // f32 [T]
  TensorOffset post_norm;  // [T, H]
  TensorOffset gate_up;    // [T, 2I]
  TensorOffset product;    // [T, I]: silu(gate) * up
  int64_t bytes;
};

// Inside one ForwardBlock or BackwardBlock op. The MLP's part and the attention's part are used
// one after the other and share their bytes.
struct BlockScratch {
  TensorOffset d_norm;       // [T, H]
  TensorOffset d_product;    // [T, I]
  TensorOffset d_gate_up;    // [T, 2I]
  TensorOffset d_attention;  // [T, q]
  TensorOffset d_qkv;        // [T, q+2kv]
  TensorOffset kernel;       // what the attention kernel asks for
  int64_t bytes;
};

// Inside one HeadLoss op, for a chunk of R rows.
struct HeadScratch {
  TensorOffset rstd;    // f32 [R]
  TensorOffset norm;    // [R, H]
  TensorOffset d_norm;  // [R, H]
  TensorOffset logits;  // [R, V], then their gradients
  int64_t bytes;
};

// `element_bytes`: 4 for fp32 compute, 2 for bf16. Tensors start on 256-byte boundaries.
AttentionTensors MakeAttentionTensors(const ModelSpec& spec, int64_t tokens, int64_t element_bytes);
MlpTensors MakeMlpTensors(const ModelSpec& spec, int64_t tokens, int64_t element_bytes);
BlockScratch MakeBlockScratch(const ModelSpec& spec, int64_t tokens, int64_t element_bytes,
                              int64_t kernel_bytes);
HeadScratch MakeHeadScratch(const ModelSpec& spec, int64_t rows, int64_t element_bytes);

}  // namespace penstock
