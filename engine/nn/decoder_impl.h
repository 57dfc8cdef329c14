// Bodies of Decoder, included once by each backend's instantiation (decoder_cpu.cc).
//
// Backward, with d = gradient by the block's output, in place in one buffer:
//   d_product = d W_down; d_gate_up = swiglu'(d_product); d += norm'(d_gate_up W_gate_up)
// which is the gradient by `middle`, since middle reaches the output directly and through the
// MLP. The attention side repeats the pattern down to the block's input.
#pragma once

#include <algorithm>

#include "engine/base/status.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/embedding.h"
#include "engine/kernels/head_norm.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/rmsnorm.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/swiglu.h"
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

template <typename T, typename Context>
absl::Status Decoder<T, Context>::Embed(Context& context, const MicroBatchView& batch,
                                        const T* table, T* out) const {
  return EmbeddingForward(context, EmbeddingForwardArgs<T>{.ids = batch.ids,
                                                           .table = table,
                                                           .out = out,
                                                           .rows = batch.tokens,
                                                           .cols = spec_.hidden_size,
                                                           .vocab = spec_.vocab_size});
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::EmbedBackward(Context& context, const MicroBatchView& batch,
                                                const T* d, float* gradient, WriteMode mode) const {
  return EmbeddingBackward(context, EmbeddingBackwardArgs<T>{.ids = batch.ids,
                                                             .dout = d,
                                                             .dtable = gradient,
                                                             .rows = batch.tokens,
                                                             .cols = spec_.hidden_size,
                                                             .vocab = spec_.vocab_size,
                                                             .mode = mode});
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::Forward(Context& context, int64_t layer,
                                          const MicroBatchView& batch,
                                          const BlockForwardArgs<T>& args) const {
  PENSTOCK_RETURN_IF_ERROR(
      AttentionForward(context, layer, batch, args.weights, args.in, args.attention, args.scratch));
  return MlpForward(context, batch.tokens, args.weights, args.attention, args.mlp, args.out);
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::ProjectQkv(Context& context, const MicroBatchView& batch,
                                             const T* weights, const T* in,
                                             std::byte* attention) const {
  const int64_t tokens = batch.tokens, hidden = spec_.hidden_size;
  const int64_t qkv_size = spec_.q_size() + 2 * spec_.kv_size();
  T* norm = At<T>(attention, attention_.input_norm);
  T* qkv = At<T>(attention, attention_.qkv);
  PENSTOCK_RETURN_IF_ERROR(RmsNormForward(
      context, RmsNormForwardArgs<T>{.x = in,
                                     .w = Find(weights, Role::kInputNorm),
                                     .y = norm,
                                     .rstd = At<float>(attention, attention_.input_rstd),
                                     .rows = tokens,
                                     .cols = hidden,
                                     .eps = static_cast<float>(spec_.rms_norm_eps)}));
  PENSTOCK_RETURN_IF_ERROR(
      LinearForward(context, LinearForwardArgs<T>{.x = norm,
                                                  .w = Find(weights, Role::kQWeight),
                                                  .bias = Find(weights, Role::kQBias),
                                                  .y = qkv,
                                                  .rows = tokens,
                                                  .in = hidden,
                                                  .out = qkv_size}));
  const QkView qk = Qk(attention);
  struct Part {
    T* raw;
    T* place;
    Role norm;
    TensorOffset rstd;
    int64_t heads;
  };
  const Part parts[] = {
      {qkv, qk.q, Role::kQNorm, attention_.q_rstd, spec_.num_heads},
      {qkv + spec_.q_size(), qk.k, Role::kKNorm, attention_.k_rstd, spec_.num_kv_heads}};
  for (const Part& part : parts) {
    if (qk_norm()) {
      PENSTOCK_RETURN_IF_ERROR(HeadNormForward(
          context, HeadNormForwardArgs<T>{.x = part.raw,
                                          .x_stride = qkv_size,
                                          .w = Find(weights, part.norm),
                                          .y = part.place,
                                          .y_stride = qk.stride,
                                          .rstd = At<float>(attention, part.rstd),
                                          .rows = tokens,
                                          .heads = part.heads,
                                          .head_dim = spec_.head_dim,
                                          .eps = static_cast<float>(spec_.rms_norm_eps)}));
    }
    PENSTOCK_RETURN_IF_ERROR(Rope(context, RopeArgs<T>{.x = part.place,
                                                       .stride = qk.stride,
                                                       .rows = tokens,
                                                       .heads = part.heads,
                                                       .head_dim = spec_.head_dim,
                                                       .positions = batch.positions,
                                                       .table = rope_table_,
                                                       .max_positions = rope_positions_,
                                                       .direction = RopeDirection::kForward}));
  }
  return absl::OkStatus();
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::AttentionForward(Context& context, int64_t layer,
                                                   const MicroBatchView& batch, const T* weights,
                                                   const T* in, std::byte* attention,
                                                   std::byte* scratch) const {
  PENSTOCK_RETURN_IF_ERROR(ProjectQkv(context, batch, weights, in, attention));
  const int64_t qkv_size = spec_.q_size() + 2 * spec_.kv_size();
  const QkView qk = Qk(attention);
  T* attended = At<T>(attention, attention_.attention);
  PENSTOCK_RETURN_IF_ERROR(penstock::AttentionForward(
      context, AttentionForwardArgs<T>{
                   .q = qk.q,
                   .q_stride = qk.stride,
                   .k = qk.k,
                   .k_stride = qk.stride,
                   .v = At<T>(attention, attention_.qkv) + spec_.q_size() + spec_.kv_size(),
                   .v_stride = qkv_size,
                   .out = attended,
                   .lse = At<float>(attention, attention_.lse),
                   .document_starts = batch.document_starts,
                   .num_documents = batch.num_documents,
                   .rows = batch.tokens,
                   .num_heads = spec_.num_heads,
                   .num_kv_heads = spec_.num_kv_heads,
                   .head_dim = spec_.head_dim,
                   .scale = static_cast<float>(spec_.attention_scale),
                   .window = spec_.window[layer],
                   .scratch = scratch + scratch_.kernel,
                   .scratch_bytes = kernel_scratch_bytes_}));
  return LinearForward(context, LinearForwardArgs<T>{.x = attended,
                                                     .w = Find(weights, Role::kOWeight),
                                                     .bias = Find(weights, Role::kOBias),
                                                     .residual = in,
                                                     .y = At<T>(attention, attention_.middle),
                                                     .rows = batch.tokens,
                                                     .in = spec_.q_size(),
                                                     .out = spec_.hidden_size});
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::MlpForward(Context& context, int64_t tokens, const T* weights,
                                             const std::byte* attention, std::byte* mlp,
                                             T* out) const {
  const int64_t hidden = spec_.hidden_size, intermediate = spec_.intermediate_size;
  const T* middle = At<T>(attention, attention_.middle);
  T* norm = At<T>(mlp, mlp_.post_norm);
  T* gate_up = At<T>(mlp, mlp_.gate_up);
  T* product = At<T>(mlp, mlp_.product);
  PENSTOCK_RETURN_IF_ERROR(RmsNormForward(
      context, RmsNormForwardArgs<T>{.x = middle,
                                     .w = Find(weights, Role::kPostNorm),
                                     .y = norm,
                                     .rstd = At<float>(mlp, mlp_.post_rstd),
                                     .rows = tokens,
                                     .cols = hidden,
                                     .eps = static_cast<float>(spec_.rms_norm_eps)}));
  PENSTOCK_RETURN_IF_ERROR(
      LinearForward(context, LinearForwardArgs<T>{.x = norm,
                                                  .w = Find(weights, Role::kGateWeight),
                                                  .bias = Find(weights, Role::kGateBias),
                                                  .y = gate_up,
                                                  .rows = tokens,
                                                  .in = hidden,
                                                  .out = 2 * intermediate}));
  PENSTOCK_RETURN_IF_ERROR(SwigluForward(
      context,
      SwigluForwardArgs<T>{
          .gate_up = gate_up, .y = product, .rows = tokens, .intermediate = intermediate}));
  if (out == nullptr) return absl::OkStatus();  // recomputing for backward: the output is known
  return LinearForward(context, LinearForwardArgs<T>{.x = product,
                                                     .w = Find(weights, Role::kDownWeight),
                                                     .bias = Find(weights, Role::kDownBias),
                                                     .residual = middle,
                                                     .y = out,
                                                     .rows = tokens,
                                                     .in = intermediate,
                                                     .out = hidden});
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::Backward(Context& context, int64_t layer,
                                           const MicroBatchView& batch,
                                           const BlockBackwardArgs<T>& args) const {
  if (args.saved == SaveLevel::kInput) {
    PENSTOCK_RETURN_IF_ERROR(AttentionForward(context, layer, batch, args.weights, args.in,
                                              args.attention, args.scratch));
  }
  if (args.saved != SaveLevel::kAll) {
    PENSTOCK_RETURN_IF_ERROR(
        MlpForward(context, batch.tokens, args.weights, args.attention, args.mlp, /*out=*/nullptr));
  }
  PENSTOCK_RETURN_IF_ERROR(MlpBackward(context, batch.tokens, args));
  PENSTOCK_RETURN_IF_ERROR(AttentionBackward(context, layer, batch, args));
  return QkvBackward(context, batch, args);
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::MlpBackward(Context& context, int64_t tokens,
                                              const BlockBackwardArgs<T>& args) const {
  const int64_t hidden = spec_.hidden_size, intermediate = spec_.intermediate_size;
  T* d_product = At<T>(args.scratch, scratch_.d_product);
  T* d_gate_up = At<T>(args.scratch, scratch_.d_gate_up);
  T* d_norm = At<T>(args.scratch, scratch_.d_norm);
  PENSTOCK_RETURN_IF_ERROR(LinearBackwardWeight(
      context, LinearBackwardWeightArgs<T>{.dy = args.d,
                                           .x = At<T>(args.mlp, mlp_.product),
                                           .dw = Find(args.gradients, Role::kDownWeight),
                                           .dbias = Find(args.gradients, Role::kDownBias),
                                           .rows = tokens,
                                           .in = intermediate,
                                           .out = hidden,
                                           .mode = args.mode}));
  PENSTOCK_RETURN_IF_ERROR(LinearBackwardInput(
      context, LinearBackwardInputArgs<T>{.dy = args.d,
                                          .w = Find(args.weights, Role::kDownWeight),
                                          .dx = d_product,
                                          .rows = tokens,
                                          .in = intermediate,
                                          .out = hidden,
                                          .mode = WriteMode::kOverwrite}));
  PENSTOCK_RETURN_IF_ERROR(
      SwigluBackward(context, SwigluBackwardArgs<T>{.gate_up = At<T>(args.mlp, mlp_.gate_up),
                                                    .dy = d_product,
                                                    .d_gate_up = d_gate_up,
                                                    .rows = tokens,
                                                    .intermediate = intermediate}));
  PENSTOCK_RETURN_IF_ERROR(LinearBackwardWeight(
      context, LinearBackwardWeightArgs<T>{.dy = d_gate_up,
                                           .x = At<T>(args.mlp, mlp_.post_norm),
                                           .dw = Find(args.gradients, Role::kGateWeight),
                                           .dbias = Find(args.gradients, Role::kGateBias),
                                           .rows = tokens,
                                           .in = hidden,
                                           .out = 2 * intermediate,
                                           .mode = args.mode}));
  PENSTOCK_RETURN_IF_ERROR(LinearBackwardInput(
      context, LinearBackwardInputArgs<T>{.dy = d_gate_up,
                                          .w = Find(args.weights, Role::kGateWeight),
                                          .dx = d_norm,
                                          .rows = tokens,
                                          .in = hidden,
                                          .out = 2 * intermediate,
                                          .mode = WriteMode::kOverwrite}));
  return RmsNormBackward(context,
                         RmsNormBackwardArgs<T>{.dy = d_norm,
                                                .x = At<T>(args.attention, attention_.middle),
                                                .w = Find(args.weights, Role::kPostNorm),
                                                .rstd = At<float>(args.mlp, mlp_.post_rstd),
                                                .dx = args.d,
                                                .dx_mode = WriteMode::kAdd,
                                                .dw = Find(args.gradients, Role::kPostNorm),
                                                .dw_mode = args.mode,
                                                .rows = tokens,
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
  const QkView qk = Qk(args.attention);
  const int64_t k_at = spec_.q_size(), v_at = spec_.q_size() + spec_.kv_size();
  return penstock::AttentionBackward(
      context, AttentionBackwardArgs<T>{.q = qk.q,
                                        .q_stride = qk.stride,
                                        .k = qk.k,
                                        .k_stride = qk.stride,
                                        .v = At<T>(args.attention, attention_.qkv) + v_at,
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
                                        .scratch_bytes = kernel_scratch_bytes_});
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::RotateBack(Context& context, const MicroBatchView& batch,
                                             T* d_qkv) const {
  // q and k heads lie side by side and turn alike.
  return Rope(context, RopeArgs<T>{.x = d_qkv,
                                   .stride = spec_.q_size() + 2 * spec_.kv_size(),
                                   .rows = batch.tokens,
                                   .heads = spec_.num_heads + spec_.num_kv_heads,
                                   .head_dim = spec_.head_dim,
                                   .positions = batch.positions,
                                   .table = rope_table_,
                                   .max_positions = rope_positions_,
                                   .direction = RopeDirection::kBackward});
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::QkNormBackward(Context& context, int64_t tokens,
                                                 const BlockBackwardArgs<T>& args) const {
  const int64_t qkv_size = spec_.q_size() + 2 * spec_.kv_size();
  struct Part {
    int64_t at;
    Role norm;
    TensorOffset rstd;
    int64_t heads;
  };
  const Part parts[] = {{0, Role::kQNorm, attention_.q_rstd, spec_.num_heads},
                        {spec_.q_size(), Role::kKNorm, attention_.k_rstd, spec_.num_kv_heads}};
  for (const Part& part : parts) {
    T* d = At<T>(args.scratch, scratch_.d_qkv) + part.at;
    PENSTOCK_RETURN_IF_ERROR(HeadNormBackward(
        context, HeadNormBackwardArgs<T>{.dy = d,
                                         .dy_stride = qkv_size,
                                         .x = At<T>(args.attention, attention_.qkv) + part.at,
                                         .x_stride = qkv_size,
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
  T* d_norm = At<T>(args.scratch, scratch_.d_norm);
  PENSTOCK_RETURN_IF_ERROR(RotateBack(context, batch, d_qkv));
  if (qk_norm()) PENSTOCK_RETURN_IF_ERROR(QkNormBackward(context, tokens, args));
  PENSTOCK_RETURN_IF_ERROR(LinearBackwardWeight(
      context, LinearBackwardWeightArgs<T>{.dy = d_qkv,
                                           .x = At<T>(args.attention, attention_.input_norm),
                                           .dw = Find(args.gradients, Role::kQWeight),
                                           .dbias = Find(args.gradients, Role::kQBias),
                                           .rows = tokens,
                                           .in = hidden,
                                           .out = qkv_size,
                                           .mode = args.mode}));
  PENSTOCK_RETURN_IF_ERROR(LinearBackwardInput(
      context, LinearBackwardInputArgs<T>{.dy = d_qkv,
                                          .w = Find(args.weights, Role::kQWeight),
                                          .dx = d_norm,
                                          .rows = tokens,
                                          .in = hidden,
                                          .out = qkv_size,
                                          .mode = WriteMode::kOverwrite}));
  return RmsNormBackward(
      context, RmsNormBackwardArgs<T>{.dy = d_norm,
                                      .x = args.in,
                                      .w = Find(args.weights, Role::kInputNorm),
                                      .rstd = At<float>(args.attention, attention_.input_rstd),
                                      .dx = args.d,
                                      .dx_mode = WriteMode::kAdd,
                                      .dw = Find(args.gradients, Role::kInputNorm),
                                      .dw_mode = args.mode,
                                      .rows = tokens,
                                      .cols = hidden});
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::Logits(Context& context, const HeadLossArgs<T>& args,
                                         int64_t first_row, int64_t rows) const {
  T* norm = At<T>(args.scratch, head_scratch_.norm);
  PENSTOCK_RETURN_IF_ERROR(RmsNormForward(
      context, RmsNormForwardArgs<T>{.x = args.in + first_row * spec_.hidden_size,
                                     .w = args.weights,  // the head block starts with it
                                     .y = norm,
                                     .rstd = At<float>(args.scratch, head_scratch_.rstd),
                                     .rows = rows,
                                     .cols = spec_.hidden_size,
                                     .eps = static_cast<float>(spec_.rms_norm_eps)}));
  return LinearForward(context, LinearForwardArgs<T>{.x = norm,
                                                     .w = args.head_weights,
                                                     .y = At<T>(args.scratch, head_scratch_.logits),
                                                     .rows = rows,
                                                     .in = spec_.hidden_size,
                                                     .out = spec_.vocab_size});
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::HeadChunk(Context& context, const MicroBatchView& batch,
                                            const HeadLossArgs<T>& args, int64_t first_row,
                                            int64_t rows, WriteMode mode) const {
  const int64_t hidden = spec_.hidden_size;
  const bool gradients = args.d_in != nullptr;
  T* logits = At<T>(args.scratch, head_scratch_.logits);
  T* norm = At<T>(args.scratch, head_scratch_.norm);
  T* d_norm = At<T>(args.scratch, head_scratch_.d_norm);
  PENSTOCK_RETURN_IF_ERROR(Logits(context, args, first_row, rows));
  PENSTOCK_RETURN_IF_ERROR(CrossEntropy(
      context, CrossEntropyArgs<T>{.logits = logits,
                                   .labels = batch.labels + first_row,
                                   .rows = rows,
                                   .vocab = spec_.vocab_size,
                                   .scale = args.gradient_scale,
                                   .loss_sum = args.loss_sum,
                                   .labelled_tokens = args.labelled_tokens,
                                   .mode = gradients ? CrossEntropyMode::kLossAndGradient
                                                     : CrossEntropyMode::kLoss}));
  if (!gradients) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(
      LinearBackwardWeight(context, LinearBackwardWeightArgs<T>{.dy = logits,
                                                                .x = norm,
                                                                .dw = args.head_gradient,
                                                                .rows = rows,
                                                                .in = hidden,
                                                                .out = spec_.vocab_size,
                                                                .mode = mode}));
  PENSTOCK_RETURN_IF_ERROR(
      LinearBackwardInput(context, LinearBackwardInputArgs<T>{.dy = logits,
                                                              .w = args.head_weights,
                                                              .dx = d_norm,
                                                              .rows = rows,
                                                              .in = hidden,
                                                              .out = spec_.vocab_size,
                                                              .mode = WriteMode::kOverwrite}));
  return RmsNormBackward(context,
                         RmsNormBackwardArgs<T>{.dy = d_norm,
                                                .x = args.in + first_row * hidden,
                                                .w = args.weights,
                                                .rstd = At<float>(args.scratch, head_scratch_.rstd),
                                                .dx = args.d_in + first_row * hidden,
                                                .dx_mode = WriteMode::kOverwrite,
                                                .dw = args.norm_gradient,
                                                .dw_mode = mode,
                                                .rows = rows,
                                                .cols = hidden});
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::HeadLoss(Context& context, const MicroBatchView& batch,
                                           const HeadLossArgs<T>& args) const {
  WriteMode mode = args.mode;
  for (int64_t row = 0; row < batch.tokens; row += head_chunk_rows_) {
    const int64_t rows = std::min(head_chunk_rows_, batch.tokens - row);
    PENSTOCK_RETURN_IF_ERROR(HeadChunk(context, batch, args, row, rows, mode));
    mode = WriteMode::kAdd;
  }
  return absl::OkStatus();
}

}  // namespace penstock
