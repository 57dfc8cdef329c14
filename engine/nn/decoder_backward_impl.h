// Decoder's backward pass. With d = gradient by the block's output, in place in one buffer:
//   d_product = d W_down; d_gate_up = swiglu'(d_product); d += norm'(d_gate_up W_gate_up)
// which is the gradient by `middle`, since middle reaches the output directly and through the
// MLP. The attention side repeats the pattern down to the block's input. Norms and the product are
// computed again from what is saved, at every save level: by the same kernels, so to the same bits.
#pragma once

#include "engine/base/status.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/embedding.h"
#include "engine/kernels/head_norm.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/rmsnorm.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/swiglu.h"
#include "engine/nn/decoder_views_impl.h"

namespace penstock {

template <typename T, typename Context>
absl::Status Decoder<T, Context>::EmbedBackward(Context& context, const MicroBatchView& batch,
                                                const T* d, float* gradient, WriteMode mode,
                                                std::byte* scratch) const {
  return EmbeddingBackward(context,
                           EmbeddingBackwardArgs<T>{.ids = batch.ids,
                                                    .dout = d,
                                                    .dtable = gradient,
                                                    .rows = batch.tokens,
                                                    .cols = spec_.hidden_size,
                                                    .vocab = spec_.vocab_size,
                                                    .mode = mode,
                                                    .scratch = scratch + scratch_.kernel,
                                                    .scratch_bytes = kernel_scratch_bytes_});
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::Backward(Context& context, int64_t layer,
                                           const MicroBatchView& batch,
                                           const BlockBackwardArgs<T>& args) const {
  if (args.saved == SaveLevel::kInput) {
    PENSTOCK_RETURN_IF_ERROR(AttentionForward(context, layer, batch, args.weights, args.in,
                                              args.attention, args.scratch));
  }
  PENSTOCK_RETURN_IF_ERROR(MlpBackward(context, batch.tokens, args));
  PENSTOCK_RETURN_IF_ERROR(AttentionBackward(context, layer, batch, args));
  return QkvBackward(context, batch, args);
}

// Chunks of rows differ in what they read; their sums over rows go to the same gradients, in the
// order of the chunks.
template <typename T, typename Context>
absl::Status Decoder<T, Context>::MlpBackward(Context& context, int64_t tokens,
                                              const BlockBackwardArgs<T>& args) const {
  WriteMode mode = args.mode;
  return ForEachMlpChunk(
      tokens, args.attention, args.mlp, args.saved, [&](const MlpChunk& chunk) -> absl::Status {
        if (args.saved != SaveLevel::kAll) {
          PENSTOCK_RETURN_IF_ERROR(GateUp(context, chunk, args.weights, args.scratch));
        }
        PENSTOCK_RETURN_IF_ERROR(DownBackward(context, chunk, args, mode));
        PENSTOCK_RETURN_IF_ERROR(GateUpBackward(context, chunk, args, mode));
        mode = WriteMode::kAdd;
        return absl::OkStatus();
      });
}

// From d by the block's output to d_gate_up in place of gate_up. The gradient by the product comes
// first: what makes d_gate_up of it leaves in its place the product, which W_down's gradient needs.
template <typename T, typename Context>
absl::Status Decoder<T, Context>::DownBackward(Context& context, const MlpChunk& chunk,
                                               const BlockBackwardArgs<T>& args,
                                               WriteMode mode) const {
  const int64_t hidden = spec_.hidden_size, intermediate = spec_.intermediate_size;
  const T* d = args.d + chunk.row * hidden;
  T* product = At<T>(args.scratch, scratch_.product);
  PENSTOCK_RETURN_IF_ERROR(LinearBackwardInput(
      context, LinearBackwardInputArgs<T>{.dy = d,
                                          .w = Find(args.weights, Role::kDownWeight),
                                          .dx = product,
                                          .rows = chunk.rows,
                                          .in = intermediate,
                                          .out = hidden,
                                          .mode = WriteMode::kOverwrite}));
  PENSTOCK_RETURN_IF_ERROR(
      SwigluBackward(context, SwigluBackwardArgs<T>{.gate_up = chunk.gate_up,
                                                    .dy = product,
                                                    .product = product,
                                                    .d_gate_up = chunk.gate_up,
                                                    .rows = chunk.rows,
                                                    .intermediate = intermediate}));
  return LinearBackwardWeight(
      context, LinearBackwardWeightArgs<T>{.dy = d,
                                           .x = product,
                                           .dw = Find(args.gradients, Role::kDownWeight),
                                           .dbias = Find(args.gradients, Role::kDownBias),
                                           .rows = chunk.rows,
                                           .in = intermediate,
                                           .out = hidden,
                                           .mode = mode});
}

// From d_gate_up to d by `middle`.
template <typename T, typename Context>
absl::Status Decoder<T, Context>::GateUpBackward(Context& context, const MlpChunk& chunk,
                                                 const BlockBackwardArgs<T>& args,
                                                 WriteMode mode) const {
  const int64_t hidden = spec_.hidden_size, intermediate = spec_.intermediate_size;
  T* norm = At<T>(args.scratch, scratch_.post_norm);
  float* rstd = At<float>(args.scratch, scratch_.post_rstd);
  PENSTOCK_RETURN_IF_ERROR(Normalize(context, chunk.middle, Find(args.weights, Role::kPostNorm),
                                     chunk.rows, norm, rstd));
  PENSTOCK_RETURN_IF_ERROR(LinearBackwardWeight(
      context, LinearBackwardWeightArgs<T>{.dy = chunk.gate_up,
                                           .x = norm,
                                           .dw = Find(args.gradients, Role::kGateWeight),
                                           .dbias = Find(args.gradients, Role::kGateBias),
                                           .rows = chunk.rows,
                                           .in = hidden,
                                           .out = 2 * intermediate,
                                           .mode = mode}));
  T* d_norm = norm;  // W_gate_up's gradient was the last to read the norm
  PENSTOCK_RETURN_IF_ERROR(LinearBackwardInput(
      context, LinearBackwardInputArgs<T>{.dy = chunk.gate_up,
                                          .w = Find(args.weights, Role::kGateWeight),
                                          .dx = d_norm,
                                          .rows = chunk.rows,
                                          .in = hidden,
                                          .out = 2 * intermediate,
                                          .mode = WriteMode::kOverwrite}));
  return RmsNormBackward(context,
                         RmsNormBackwardArgs<T>{.dy = d_norm,
                                                .x = chunk.middle,
                                                .w = Find(args.weights, Role::kPostNorm),
                                                .rstd = rstd,
                                                .dx = args.d + chunk.row * hidden,
                                                .dx_mode = WriteMode::kAdd,
                                                .dw = Find(args.gradients, Role::kPostNorm),
                                                .dw_mode = mode,
                                                .rows = chunk.rows,
                                                .cols = hidden});
}

// From d by `middle` to d_qkv by q, k (rotated and normed) and v.
template <typename T, typename Context>
absl::Status Decoder<T, Context>::AttentionBackward(Context& context, int64_t layer,
                                                    const MicroBatchView& batch,
                                                    const BlockBackwardArgs<T>& args) const {
  const int64_t tokens = batch.tokens;
  const int64_t qkv_size = spec_.q_size() + 2 * spec_.kv_size();
  const T* attended = At<T>(args.attention, attention_.attention);
  T* d_attention = At<T>(args.scratch, scratch_.d_attention);
  T* d_qkv = At<T>(args.scratch, scratch_.d_qkv);
  PENSTOCK_RETURN_IF_ERROR(LinearBackwardWeight(
      context, LinearBackwardWeightArgs<T>{.dy = args.d,
                                           .x = attended,
                                           .dw = Find(args.gradients, Role::kOWeight),
                                           .dbias = Find(args.gradients, Role::kOBias),
                                           .rows = tokens,
                                           .in = spec_.q_size(),
                                           .out = spec_.hidden_size,
                                           .mode = args.mode}));
  PENSTOCK_RETURN_IF_ERROR(LinearBackwardInput(
      context, LinearBackwardInputArgs<T>{.dy = args.d,
                                          .w = Find(args.weights, Role::kOWeight),
                                          .dx = d_attention,
                                          .rows = tokens,
                                          .in = spec_.q_size(),
                                          .out = spec_.hidden_size,
                                          .mode = WriteMode::kOverwrite}));
  const T* q = At<T>(args.attention, attention_.qkv);
  const int64_t k_at = spec_.q_size(), v_at = spec_.q_size() + spec_.kv_size();
  return penstock::AttentionBackward(
      context, AttentionBackwardArgs<T>{.q = q,
                                        .q_stride = qkv_size,
                                        .k = q + k_at,
                                        .k_stride = qkv_size,
                                        .v = q + v_at,
                                        .v_stride = qkv_size,
                                        .out = attended,
                                        .dout = d_attention,
                                        .lse = At<float>(args.attention, attention_.lse),
                                        .dq = d_qkv,
                                        .dq_stride = qkv_size,
                                        .dk = d_qkv + k_at,
                                        .dk_stride = qkv_size,
                                        .dv = d_qkv + v_at,
                                        .dv_stride = qkv_size,
                                        .document_starts = batch.document_starts,
                                        .num_documents = batch.num_documents,
                                        .rows = tokens,
                                        .num_heads = spec_.num_heads,
                                        .num_kv_heads = spec_.num_kv_heads,
                                        .head_dim = spec_.head_dim,
                                        .scale = static_cast<float>(spec_.attention_scale),
                                        .window = spec_.window[layer],
                                        .scratch = args.scratch + scratch_.kernel,
                                        .scratch_bytes = kernel_scratch_bytes_,
                                        .host_document_starts = batch.host_document_starts});
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::QkNormBackward(Context& context, int64_t tokens,
                                                 const BlockBackwardArgs<T>& args) const {
  const int64_t qkv_size = spec_.q_size() + 2 * spec_.kv_size();
  for (const NormedHeads& part : QkNormParts()) {
    T* d = At<T>(args.scratch, scratch_.d_qkv) + part.at;
    PENSTOCK_RETURN_IF_ERROR(HeadNormBackward(
        context, HeadNormBackwardArgs<T>{.dy = d,
                                         .dy_stride = qkv_size,
                                         .x = At<T>(args.attention, attention_.raw_qk) + part.at,
                                         .x_stride = spec_.q_size() + spec_.kv_size(),
                                         .w = Find(args.weights, part.norm),
                                         .rstd = At<float>(args.attention, part.rstd),
                                         .dx = d,
                                         .dx_stride = qkv_size,
                                         .dw = Find(args.gradients, part.norm),
                                         .dw_mode = args.mode,
                                         .rows = tokens,
                                         .heads = part.heads,
                                         .head_dim = spec_.head_dim}));
  }
  return absl::OkStatus();
}

// From d_qkv by rotated q, k and v to d by the block's input.
template <typename T, typename Context>
absl::Status Decoder<T, Context>::QkvBackward(Context& context, const MicroBatchView& batch,
                                              const BlockBackwardArgs<T>& args) const {
  const int64_t tokens = batch.tokens, hidden = spec_.hidden_size;
  const int64_t qkv_size = spec_.q_size() + 2 * spec_.kv_size();
  T* d_qkv = At<T>(args.scratch, scratch_.d_qkv);
  T* norm = At<T>(args.scratch, scratch_.input_norm);
  float* rstd = At<float>(args.scratch, scratch_.input_rstd);
  PENSTOCK_RETURN_IF_ERROR(Rotate(context, batch, RopeDirection::kBackward, d_qkv));
  if (qk_norm()) PENSTOCK_RETURN_IF_ERROR(QkNormBackward(context, tokens, args));
  PENSTOCK_RETURN_IF_ERROR(
      Normalize(context, args.in, Find(args.weights, Role::kInputNorm), tokens, norm, rstd));
  PENSTOCK_RETURN_IF_ERROR(LinearBackwardWeight(
      context, LinearBackwardWeightArgs<T>{.dy = d_qkv,
                                           .x = norm,
                                           .dw = Find(args.gradients, Role::kQWeight),
                                           .dbias = Find(args.gradients, Role::kQBias),
                                           .rows = tokens,
                                           .in = hidden,
                                           .out = qkv_size,
                                           .mode = args.mode}));
  T* d_norm = norm;  // W_qkv's gradient was the last to read the norm
  PENSTOCK_RETURN_IF_ERROR(LinearBackwardInput(
      context, LinearBackwardInputArgs<T>{.dy = d_qkv,
                                          .w = Find(args.weights, Role::kQWeight),
                                          .dx = d_norm,
                                          .rows = tokens,
                                          .in = hidden,
                                          .out = qkv_size,
                                          .mode = WriteMode::kOverwrite}));
  return RmsNormBackward(context,
                         RmsNormBackwardArgs<T>{.dy = d_norm,
                                                .x = args.in,
                                                .w = Find(args.weights, Role::kInputNorm),
                                                .rstd = rstd,
                                                .dx = args.d,
                                                .dx_mode = WriteMode::kAdd,
                                                .dw = Find(args.gradients, Role::kInputNorm),
                                                .dw_mode = args.mode,
                                                .rows = tokens,
                                                .cols = hidden});
}

}  // namespace penstock
