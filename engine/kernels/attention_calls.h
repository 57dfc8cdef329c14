// How attention through cuDNN is cut into calls: which documents and heads one call takes.
// Pure, so that tests and memory plans need no GPU. Internal to attention_cudnn_cuda.* and to
// CudaAttentionScratchBytes.
//
// Forward: up to kMaxDocuments documents a call, all heads; it needs next to no workspace.
//
// Backward: cuDNN's repeatable algorithm stores the gradients of all scores of a call,
//   batch * heads * longest^2 * 2 bytes,
// so a call takes documents of one length class only (a power of two), and no more of them than
// fit the scratch. A document that does not fit alone goes by groups of heads that share a
// key/value head; one whose single group does not fit goes by blocks of rows: a call for each block
// of queries and each block of keys that they see, whose partial gradients are added up in f32.
// Without groups, with a window, or with too little scratch even for that it is left to our own
// kernels. The choice depends on a document's length, the model's geometry and the bytes of
// scratch, and a plan's room changes no bits, so a document's bits do not depend on its neighbours.
#pragma once

#include <array>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/kernels/attention.h"

namespace penstock::attention {

struct Document {
  int32_t begin, rows;
};

struct Call {
  static constexpr int64_t kMaxDocuments = 128;

  int64_t batch;    // documents that the plan has room for, >= count
  int64_t longest;  // rows of a document that it has room for
  int64_t first_kv_head, num_kv_heads;
  int64_t count;
  std::array<Document, kMaxDocuments> documents;
};

inline constexpr int64_t kShortestClass = 128;
// Scratch for the arrays that describe a call's documents.
inline constexpr int64_t kTableBytes = 16 << 10;
// cuDNN aligns its arrays and adds a few small ones; measured: under 1 KiB.
inline constexpr int64_t kRoundingBytes = int64_t{1} << 20;
// What a backward plan may take. On an H100, 28/4 heads of 128: documents of 4,096 go whole, those
// of 8,192 by groups and longer ones by blocks; twice as much would gain 2% at 1,024.
inline constexpr int64_t kMostPlanBytes = int64_t{1} << 30;

// The power of two that `rows` is rounded up to, at least kShortestClass.
int64_t LengthClass(int64_t rows);

// What a backward call of a length class takes when its plan may have `bytes`: no documents if not
// even one key/value head of one fits.
struct BackwardCut {
  int64_t batch, num_kv_heads;
};
BackwardCut CutBackward(const AttentionShape& shape, int64_t length_class, int64_t bytes);

// Bytes of that call's workspace, as cuDNN 9.14 and 9.19 want them but for rounding.
int64_t BackwardPlanBytes(const AttentionShape& shape, int64_t length_class,
                          const BackwardCut& cut);

// How a document of `rows` rows goes by blocks in `bytes` of scratch: block 0 if it cannot.
// Blocks hold a power of two of rows, and num_kv_heads divides the model's.
struct BlockCut {
  int64_t block, num_kv_heads;
};
BlockCut CutIntoBlocks(const AttentionShape& shape, int64_t rows, int64_t bytes);

// Where a document's calls by blocks keep what they need, from the start of the scratch. Sums of
// dk and dv [rows, heads of the cut] and dq [block, likewise]; parts likewise, of one block.
struct BlockScratch {
  int64_t dk_sum, dv_sum, dq_sum;     // f32
  int64_t dq_part, dk_part, dv_part;  // bf16
  int64_t plan;
  int64_t bytes;
};
BlockScratch PlaceBlocks(const AttentionShape& shape, int64_t rows, const BlockCut& cut);

using VisitCall = absl::FunctionRef<absl::Status(const Call&)>;
using VisitDocument = absl::FunctionRef<absl::Status(const Document&)>;
// Every row of every document in exactly one call; the first error ends it. `starts` as in
// attention.h, on the host, with shape.rows rows.
absl::Status ForEachForwardCall(const AttentionShape& shape, const int32_t* starts,
                                int64_t num_documents, VisitCall visit);
// Every row and head in exactly one call, or, if too long for `bytes`, in one visit of
// `visit_long`.
absl::Status ForEachBackwardCall(const AttentionShape& shape, const int32_t* starts,
                                 int64_t num_documents, int64_t bytes, VisitCall visit,
                                 VisitDocument visit_long);

}  // namespace penstock::attention
