// The tensors inside a decoder block's buffers, for one micro-batch of T tokens. One table for
// the planner, which needs their bytes, and for engine/nn, which needs their places.
//
// Rows of the MLP do not depend on each other, so it runs in chunks of R rows (DecoderShape).
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

// Kept from ForwardBlock for BackwardBlock, or computed again: what a matrix product, attention or
// the norm of heads gave. What is cheap to compute again from these lies in BlockScratch.
struct AttentionTensors {
  TensorOffset qkv;        // [T, q+2kv]; q and k normed, where the family does, and rotated
  TensorOffset raw_qk;     // [T, q+kv] before the norm; only with q/k norm
  TensorOffset q_rstd;     // f32 [T, heads]; likewise
  TensorOffset k_rstd;     // f32 [T, kv heads]; likewise
  TensorOffset attention;  // [T, q]
  TensorOffset lse;        // f32 [T, heads]
  TensorOffset middle;     // [T, H]
  int64_t bytes;
};

// Likewise; BackwardBlock leaves nothing of use here.
struct MlpTensors {
  TensorOffset gate_up;  // [R, 2I], then the gradient by it
  int64_t bytes;
};

// Inside one ForwardBlock or BackwardBlock op. Tensors that are never in use at the same time
// share bytes.
struct BlockScratch {
  // The MLP, for R rows at a time.
  TensorOffset post_rstd;  // f32 [R]
  TensorOffset post_norm;  // [R, H], then the gradient by it
  TensorOffset product;    // [R, I]: silu(gate) * up; before it, the gradient by it
  // The attention side, for all T rows.
  TensorOffset input_rstd;   // f32 [T]
  TensorOffset input_norm;   // [T, H], then the gradient by it
  TensorOffset d_attention;  // [T, q]
  TensorOffset d_qkv;        // [T, q+2kv]
  TensorOffset kernel;       // what a kernel asks for: attention, or the embedding's backward op
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

// Rows of the MLP that are computed at a time, for a wish of `wanted`; 0 wishes for all at once.
constexpr int64_t MlpChunkRows(int64_t wanted, int64_t tokens) {
  return wanted <= 0 || wanted > tokens ? tokens : wanted;
}

// `element_bytes`: 4 for fp32 compute, 2 for bf16. Tensors start on 256-byte boundaries.
AttentionTensors MakeAttentionTensors(const ModelSpec& spec, int64_t tokens, int64_t element_bytes);
// `rows`: all T of them where the MLP is saved (SaveLevel::kAll), else those of a chunk.
MlpTensors MakeMlpTensors(const ModelSpec& spec, int64_t rows, int64_t element_bytes);
// `mlp_rows`: those of a chunk, at any save level.
BlockScratch MakeBlockScratch(const ModelSpec& spec, int64_t tokens, int64_t mlp_rows,
                              int64_t element_bytes, int64_t kernel_bytes);
HeadScratch MakeHeadScratch(const ModelSpec& spec, int64_t rows, int64_t element_bytes);

}  // namespace penstock
