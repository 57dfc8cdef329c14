// Decoder's forward pass: embedding and decoder blocks.
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
absl::Status Decoder<T, Context>::Forward(Context& context, int64_t layer,
                                          const MicroBatchView& batch,
                                          const BlockForwardArgs<T>& args) const {
  PENSTOCK_RETURN_IF_ERROR(
      AttentionForward(context, layer, batch, args.weights, args.in, args.attention, args.scratch));
  return MlpForward(context, batch.tokens, args);
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::Normalize(Context& context, const T* x, const T* w, int64_t rows,
                                            T* norm, float* rstd) const {
  return RmsNormForward(context,
                        RmsNormForwardArgs<T>{.x = x,
                                              .w = w,
                                              .y = norm,
                                              .rstd = rstd,
                                              .rows = rows,
                                              .cols = spec_.hidden_size,
                                              .eps = static_cast<float>(spec_.rms_norm_eps)});
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::ProjectQkv(Context& context, const MicroBatchView& batch,
                                             const T* weights, const T* in, std::byte* attention,
                                             std::byte* scratch) const {
  const int64_t tokens = batch.tokens;
  const int64_t qkv_size = spec_.q_size() + 2 * spec_.kv_size();
  T* norm = At<T>(scratch, scratch_.input_norm);
  T* qkv = At<T>(attention, attention_.qkv);
  PENSTOCK_RETURN_IF_ERROR(Normalize(context, in, Find(weights, Role::kInputNorm), tokens, norm,
                                     At<float>(scratch, scratch_.input_rstd)));
  PENSTOCK_RETURN_IF_ERROR(
      LinearForward(context, LinearForwardArgs<T>{.x = norm,
                                                  .w = Find(weights, Role::kQWeight),
                                                  .bias = Find(weights, Role::kQBias),
                                                  .y = qkv,
                                                  .rows = tokens,
                                                  .in = spec_.hidden_size,
                                                  .out = qkv_size}));
  if (qk_norm()) PENSTOCK_RETURN_IF_ERROR(QkNormForward(context, tokens, weights, attention));
  return Rotate(context, batch, RopeDirection::kForward, qkv);
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::QkNormForward(Context& context, int64_t tokens, const T* weights,
                                                std::byte* attention) const {
  for (const NormedHeads& part : QkNormParts()) {
    PENSTOCK_RETURN_IF_ERROR(HeadNormForward(
        context, HeadNormForwardArgs<T>{.x = At<T>(attention, attention_.qkv) + part.at,
                                        .x_stride = spec_.q_size() + 2 * spec_.kv_size(),
                                        .raw = At<T>(attention, attention_.raw_qk) + part.at,
                                        .raw_stride = spec_.q_size() + spec_.kv_size(),
                                        .w = Find(weights, part.norm),
                                        .rstd = At<float>(attention, part.rstd),
                                        .rows = tokens,
                                        .heads = part.heads,
                                        .head_dim = spec_.head_dim,
                                        .eps = static_cast<float>(spec_.rms_norm_eps)}));
  }
  return absl::OkStatus();
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::AttentionForward(Context& context, int64_t layer,
                                                   const MicroBatchView& batch, const T* weights,
                                                   const T* in, std::byte* attention,
                                                   std::byte* scratch) const {
  PENSTOCK_RETURN_IF_ERROR(ProjectQkv(context, batch, weights, in, attention, scratch));
  const int64_t qkv_size = spec_.q_size() + 2 * spec_.kv_size();
  const T* q = At<T>(attention, attention_.qkv);
  const T* k = q + spec_.q_size();
  T* attended = At<T>(attention, attention_.attention);
  PENSTOCK_RETURN_IF_ERROR(penstock::AttentionForward(
      context, AttentionForwardArgs<T>{.q = q,
                                       .q_stride = qkv_size,
                                       .k = k,
                                       .k_stride = qkv_size,
                                       .v = k + spec_.kv_size(),
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
                                       .scratch_bytes = kernel_scratch_bytes_,
                                       .host_document_starts = batch.host_document_starts}));
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
absl::Status Decoder<T, Context>::GateUp(Context& context, const MlpChunk& chunk, const T* weights,
                                         std::byte* scratch) const {
  T* norm = At<T>(scratch, scratch_.post_norm);
  PENSTOCK_RETURN_IF_ERROR(Normalize(context, chunk.middle, Find(weights, Role::kPostNorm),
                                     chunk.rows, norm, At<float>(scratch, scratch_.post_rstd)));
  return LinearForward(context, LinearForwardArgs<T>{.x = norm,
                                                     .w = Find(weights, Role::kGateWeight),
                                                     .bias = Find(weights, Role::kGateBias),
                                                     .y = chunk.gate_up,
                                                     .rows = chunk.rows,
                                                     .in = spec_.hidden_size,
                                                     .out = 2 * spec_.intermediate_size});
}

template <typename T, typename Context>
absl::Status Decoder<T, Context>::MlpForward(Context& context, int64_t tokens,
                                             const BlockForwardArgs<T>& args) const {
  T* product = At<T>(args.scratch, scratch_.product);
  return ForEachMlpChunk(
      tokens, args.attention, args.mlp, args.saved, [&](const MlpChunk& chunk) -> absl::Status {
        PENSTOCK_RETURN_IF_ERROR(GateUp(context, chunk, args.weights, args.scratch));
        PENSTOCK_RETURN_IF_ERROR(
            SwigluForward(context, SwigluForwardArgs<T>{.gate_up = chunk.gate_up,
                                                        .y = product,
                                                        .rows = chunk.rows,
                                                        .intermediate = spec_.intermediate_size}));
        return LinearForward(context,
                             LinearForwardArgs<T>{.x = product,
                                                  .w = Find(args.weights, Role::kDownWeight),
                                                  .bias = Find(args.weights, Role::kDownBias),
                                                  .residual = chunk.middle,
                                                  .y = args.out + chunk.row * spec_.hidden_size,
                                                  .rows = chunk.rows,
                                                  .in = spec_.intermediate_size,
                                                  .out = spec_.hidden_size});
      });
}

}  // namespace penstock
