// Decoder's head: final norm, logits in chunks, loss and its gradients.
#pragma once

#include <algorithm>

#include "engine/base/status.h"
#include "engine/kernels/cross_entropy.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/rmsnorm.h"
#include "engine/nn/decoder_views_impl.h"

namespace penstock {

template <typename T, typename Context>
absl::Status Decoder<T, Context>::Logits(Context& context, const HeadLossArgs<T>& args,
                                         int64_t first_row, int64_t rows) const {
  T* norm = At<T>(args.scratch, head_scratch_.norm);
  // The head block starts with its norm's weight.
  PENSTOCK_RETURN_IF_ERROR(Normalize(context, args.in + first_row * spec_.hidden_size, args.weights,
                                     rows, norm, At<float>(args.scratch, head_scratch_.rstd)));
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
