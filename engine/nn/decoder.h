// The decoder: forward and backward of every block, written once over the ops of a backend.
//
// Families differ by the switches of ModelSpec; backends by `Context`, on which engine/kernels
// overloads each op, and by the element type T of weights and activations. Gradients of
// parameters are fp32 everywhere.
//
// Nothing here allocates: the caller passes buffers laid out by plan/activations.h. All methods
// queue work on `context` and keep no state between calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "engine/kernels/context.h"
#include "engine/kernels/cross_entropy.h"
#include "engine/kernels/rope.h"
#include "engine/model/layout.h"
#include "engine/plan/activations.h"
#include "engine/plan/step_program.h"

namespace penstock {

// One micro-batch of T tokens: rows of the step, flattened; documents lie one after the other
// and never see each other. Padding is a document of its own without labels.
struct MicroBatchView {
  const int32_t* ids = nullptr;              // [T], each < vocab_size
  const int32_t* positions = nullptr;        // [T], restart at 0 with each document
  const int32_t* labels = nullptr;           // [T], kIgnoreLabel where nothing is learned
  const int32_t* document_starts = nullptr;  // [num_documents + 1], first 0, last T
  int64_t num_documents = 0;
  int64_t tokens = 0;
  // document_starts on the host, for backends whose other arrays are not; may be null.
  const int32_t* host_document_starts = nullptr;
};

// Buffers are laid out by plan/activations.h: `attention` as AttentionTensors and `scratch` as
// BlockScratch, for all tokens; `mlp` as MlpTensors, for all tokens where `saved` is kAll, else
// for a chunk of rows.
template <typename T>
struct BlockForwardArgs {
  const T* weights;
  const T* in;  // [T, H]
  T* out;       // [T, H]
  std::byte* attention;
  std::byte* mlp;
  SaveLevel saved;  // kAll: `mlp` keeps all rows; else the last chunk's remain, of no use
  std::byte* scratch;
};

template <typename T>
struct BlockBackwardArgs {
  const T* weights;
  const T* in;  // [T, H], as the forward had it
  std::byte* attention;
  std::byte* mlp;    // used up: nothing is left there
  SaveLevel saved;   // what of the two is filled
  T* d;              // [T, H]: gradient by the block's output, then by its input
  float* gradients;  // the block's, in its layout
  WriteMode mode;
  std::byte* scratch;
};

template <typename T>
struct HeadLossArgs {
  const T* weights;       // head block
  const T* head_weights;  // [V, H]
  const T* in;            // [T, H]
  T* d_in;                // [T, H]; null: loss only, and then the gradients are null too
  float* norm_gradient;   // [H]
  float* head_gradient;   // [V, H]
  WriteMode mode;
  float gradient_scale;      // 1 / labelled tokens of the step
  double* loss_sum;          // added to
  int64_t* labelled_tokens;  // added to
  std::byte* scratch;
};

struct DecoderShape {
  int64_t tokens_per_micro_batch = 0;
  int64_t head_chunk_rows = 0;
  // Rows of the MLP that are computed at a time; 0: all. Forward gives the same bits whatever it
  // is; gradients of weights are summed chunk by chunk. Save levels give the same bits on CUDA
  // where chunks start on 16-byte boundaries of gate_up: cuBLASLt's choice depends on that.
  int64_t mlp_chunk_rows = 0;
  int64_t kernel_scratch_bytes = 0;
};

template <typename T, typename Context>
class Decoder {
 public:
  // `rope_table` as FillRopeTable makes it, for `rope_positions` positions; not owned.
  Decoder(const ModelSpec& spec, const ModelLayout& layout, const DecoderShape& shape,
          const float* rope_table, int64_t rope_positions);

  absl::Status Embed(Context& context, const MicroBatchView& batch, const T* table, T* out) const;
  // `scratch`: a BlockScratch.
  absl::Status EmbedBackward(Context& context, const MicroBatchView& batch, const T* d,
                             float* gradient, WriteMode mode, std::byte* scratch) const;

  // `layer` counts from 0.
  absl::Status Forward(Context& context, int64_t layer, const MicroBatchView& batch,
                       const BlockForwardArgs<T>& args) const;
  absl::Status Backward(Context& context, int64_t layer, const MicroBatchView& batch,
                        const BlockBackwardArgs<T>& args) const;

  // Final norm, head and cross-entropy in chunks of rows.
  absl::Status HeadLoss(Context& context, const MicroBatchView& batch,
                        const HeadLossArgs<T>& args) const;
  // logits [rows, V] of `rows` inputs, rows <= head_chunk_rows; they lie in `scratch` at
  // head_scratch().logits afterwards.
  absl::Status Logits(Context& context, const HeadLossArgs<T>& args, int64_t first_row,
                      int64_t rows) const;

  const HeadScratch& head_scratch() const { return head_scratch_; }

 private:
  // norm and rstd of x [rows, H].
  absl::Status Normalize(Context& context, const T* x, const T* w, int64_t rows, T* norm,
                         float* rstd) const;
  absl::Status AttentionForward(Context& context, int64_t layer, const MicroBatchView& batch,
                                const T* weights, const T* in, std::byte* attention,
                                std::byte* scratch) const;
  absl::Status ProjectQkv(Context& context, const MicroBatchView& batch, const T* weights,
                          const T* in, std::byte* attention, std::byte* scratch) const;
  absl::Status MlpForward(Context& context, int64_t tokens, const BlockForwardArgs<T>& args) const;
  absl::Status AttentionBackward(Context& context, int64_t layer, const MicroBatchView& batch,
                                 const BlockBackwardArgs<T>& args) const;
  absl::Status QkvBackward(Context& context, const MicroBatchView& batch,
                           const BlockBackwardArgs<T>& args) const;
  // Turns the q and k heads of `qkv` or its gradient, which lie side by side.
  absl::Status Rotate(Context& context, const MicroBatchView& batch, RopeDirection direction,
                      T* qkv) const;
  absl::Status QkNormForward(Context& context, int64_t tokens, const T* weights,
                             std::byte* attention) const;
  absl::Status QkNormBackward(Context& context, int64_t tokens,
                              const BlockBackwardArgs<T>& args) const;
  absl::Status MlpBackward(Context& context, int64_t tokens,
                           const BlockBackwardArgs<T>& args) const;

  // Rows [row, row + rows) of the MLP, from `middle`, and their gate_up.
  struct MlpChunk {
    int64_t row, rows;
    const T* middle;
    T* gate_up;
  };
  // Calls `body` with one chunk after the other, up to the first that fails.
  template <typename Body>
  absl::Status ForEachMlpChunk(int64_t tokens, const std::byte* attention, std::byte* mlp,
                               SaveLevel saved, const Body& body) const;
  absl::Status GateUp(Context& context, const MlpChunk& chunk, const T* weights,
                      std::byte* scratch) const;
  absl::Status DownBackward(Context& context, const MlpChunk& chunk,
                            const BlockBackwardArgs<T>& args, WriteMode mode) const;
  absl::Status GateUpBackward(Context& context, const MlpChunk& chunk,
                              const BlockBackwardArgs<T>& args, WriteMode mode) const;

  absl::Status HeadChunk(Context& context, const MicroBatchView& batch, const HeadLossArgs<T>& args,
                         int64_t first_row, int64_t rows, WriteMode mode) const;

  // The q and the k heads of a token, where the family norms them.
  struct NormedHeads {
    int64_t at;  // in a row of qkv
    Role norm;
    TensorOffset rstd;
    int64_t heads;
  };
  std::array<NormedHeads, 2> QkNormParts() const {
    return {{{0, Role::kQNorm, attention_.q_rstd, spec_.num_heads},
             {spec_.q_size(), Role::kKNorm, attention_.k_rstd, spec_.num_kv_heads}}};
  }
  bool qk_norm() const { return spec_.qk_norm == QkNorm::kPerHead; }
  // The parameter of a role in a decoder block, or null.
  template <typename P>
  P* Find(P* block, Role role) const;

  ModelSpec spec_;
  BlockLayout block_layout_;  // of the first decoder layer; all are alike
  AttentionTensors attention_;
  MlpTensors mlp_;
  BlockScratch scratch_;
  HeadScratch head_scratch_;
  int64_t head_chunk_rows_;
  int64_t mlp_chunk_rows_;
  int64_t kernel_scratch_bytes_;
  const float* rope_table_;
  int64_t rope_positions_;
};

}  // namespace penstock
