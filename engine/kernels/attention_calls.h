// How attention through cuDNN is cut into calls: which documents, heads and queries one call takes.
// Pure, so that tests and memory plans need no GPU. Internal to attention_cudnn_cuda.* and to
// CudaAttentionScratchBytes.
//
// Forward: up to kMaxDocuments documents a call, all heads; it needs next to no workspace.
//
// Backward: cuDNN's repeatable algorithm stores the gradients of all scores of a call,
//   batch * heads * queries * keys * 2 bytes,
// so a call takes documents of one length class only (a power of two), and no more of them than
// keep its bytes within kScoreBytes. A document that is too long alone goes by groups of heads
// that share a key/value head; one whose single group is too long goes by chunks of queries, whose
// parts of dk and dv are summed in f32. All of it depends on the document's length and the model's
// geometry alone, so a document's bits do not depend on its neighbours.
#pragma once

#include <array>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/kernels/attention.h"

namespace penstock::attention {

// Queries [query_begin, +query_count) of a document against its keys [key_begin, +key_count); the
// last query is the last key.
struct DocumentPart {
  int32_t query_begin, query_count, key_begin, key_count;  // rows
};

struct Call {
  static constexpr int64_t kMaxDocuments = 128;

  int64_t batch;          // documents that the plan has room for, >= count
  int64_t queries, keys;  // rows of a document that it has room for
  int64_t first_kv_head, num_kv_heads;
  int64_t count;
  std::array<DocumentPart, kMaxDocuments> parts;
  // Of a document cut by queries: dk and dv are summands of it. Its chunks follow one another.
  bool summand = false, first_summand = false, last_summand = false;
  int32_t document_begin = 0, document_rows = 0;  // set with summand
};

// The limit in use; it is a parameter below for tests, whose documents are short.
inline constexpr int64_t kScoreBytes = int64_t{640} << 20;
inline constexpr int64_t kShortestClass = 128;

// The power of two that `rows` is rounded up to, at least kShortestClass.
int64_t LengthClass(int64_t rows);

// Scratch for the arrays that describe a call's documents.
inline constexpr int64_t kTableBytes = 16 << 10;

// What a backward call of a length class takes.
struct BackwardCut {
  int64_t batch, num_kv_heads, queries;
};
BackwardCut CutBackward(const AttentionShape& shape, int64_t length_class, int64_t score_bytes);

// Bytes of a backward plan's workspace, as cuDNN 9.14 and 9.19 want them but for rounding.
int64_t BackwardPlanBytes(const AttentionShape& shape, int64_t length_class, int64_t score_bytes);
// Bytes for dk and dv of a document cut by queries: sums in f32 and a summand in bf16. 0 for
// classes that are not.
int64_t SummandBytes(const AttentionShape& shape, int64_t length_class, int64_t score_bytes);

using VisitCall = absl::FunctionRef<absl::Status(const Call&)>;
// Every row of every document in exactly one call; the first error ends it. `starts` as in
// attention.h, on the host, with shape.rows rows; window 0 for none.
absl::Status ForEachForwardCall(const AttentionShape& shape, const int32_t* starts,
                                int64_t num_documents, VisitCall visit);
// Every row and head in exactly one call, or in one chunk of queries.
absl::Status ForEachBackwardCall(const AttentionShape& shape, int64_t window, const int32_t* starts,
                                 int64_t num_documents, int64_t score_bytes, VisitCall visit);

}  // namespace penstock::attention
