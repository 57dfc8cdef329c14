#include "engine/kernels/attention_calls.h"

#include <algorithm>

#include "engine/base/status.h"

namespace penstock::attention {
namespace {

constexpr int64_t kBf16Bytes = 2;

int64_t PowerOfTwoFrom(int64_t value) {
  int64_t power = 1;
  while (power < value) power *= 2;
  return power;
}

int64_t PowerOfTwoUpTo(int64_t value) { return PowerOfTwoFrom(value + 1) / 2; }

int64_t Group(const AttentionShape& shape) { return shape.num_heads / shape.num_kv_heads; }

// Score gradients of one document and one key/value head's query heads.
int64_t ScoreBytes(const AttentionShape& shape, int64_t queries, int64_t length_class) {
  return Group(shape) * queries * length_class * kBf16Bytes;
}

// All that a plan needs for one document and one key/value head's query heads: score gradients, dk
// and dv of each query head unless it has a key/value head of its own, row sums.
int64_t PlanBytes(const AttentionShape& shape, int64_t queries, int64_t length_class) {
  const int64_t gradients = Group(shape) == 1 ? 0 : 2 * length_class * shape.head_dim * kBf16Bytes;
  const int64_t row_sums = queries * static_cast<int64_t>(sizeof(float));
  return ScoreBytes(shape, queries, length_class) + Group(shape) * (gradients + row_sums);
}

// The most documents of a class that `rows` rows can hold.
int64_t MostDocuments(int64_t rows, int64_t length_class) {
  const int64_t shortest = length_class == kShortestClass ? 1 : length_class / 2 + 1;
  return std::max<int64_t>(1, rows / shortest);
}

absl::Status VisitWhole(const BackwardCut& cut, const AttentionShape& shape, Call& call,
                        VisitCall visit) {
  for (int64_t head = 0; head < shape.num_kv_heads; head += cut.num_kv_heads) {
    call.first_kv_head = head;
    call.num_kv_heads = std::min(cut.num_kv_heads, shape.num_kv_heads - head);
    PENSTOCK_RETURN_IF_ERROR(visit(call));
  }
  return absl::OkStatus();
}

absl::Status VisitChunks(const BackwardCut& cut, const AttentionShape& shape, int64_t window,
                         int32_t begin, int32_t rows, Call& call, VisitCall visit) {
  call.count = 1;
  call.num_kv_heads = 1;
  call.summand = true;
  call.document_begin = begin;
  call.document_rows = rows;
  for (call.first_kv_head = 0; call.first_kv_head < shape.num_kv_heads; ++call.first_kv_head) {
    for (int64_t query = 0; query < rows; query += cut.queries) {
      const int64_t count = std::min(cut.queries, rows - query);
      const int64_t key = window == 0 ? 0 : std::max<int64_t>(0, query - window + 1);
      call.parts[0] = {static_cast<int32_t>(begin + query), static_cast<int32_t>(count),
                       static_cast<int32_t>(begin + key),
                       static_cast<int32_t>(query + count - key)};
      call.first_summand = query == 0;
      call.last_summand = query + count == rows;
      PENSTOCK_RETURN_IF_ERROR(visit(call));
    }
  }
  return absl::OkStatus();
}

absl::Status VisitClass(const AttentionShape& shape, int64_t window, const int32_t* starts,
                        int64_t num_documents, int64_t length_class, const BackwardCut& cut,
                        VisitCall visit) {
  Call call{.batch = cut.batch,
            .queries = cut.queries,
            .keys = length_class,
            .first_kv_head = 0,
            .num_kv_heads = 0,
            .count = 0,
            .parts = {}};
  for (int64_t document = 0; document < num_documents; ++document) {
    const int32_t begin = starts[document], rows = starts[document + 1] - begin;
    if (rows == 0 || LengthClass(rows) != length_class) continue;
    if (cut.queries < length_class) {
      PENSTOCK_RETURN_IF_ERROR(VisitChunks(cut, shape, window, begin, rows, call, visit));
      continue;
    }
    call.parts[call.count++] = {begin, rows, begin, rows};
    if (call.count == cut.batch) {
      PENSTOCK_RETURN_IF_ERROR(VisitWhole(cut, shape, call, visit));
      call.count = 0;
    }
  }
  return cut.queries < length_class || call.count == 0 ? absl::OkStatus()
                                                       : VisitWhole(cut, shape, call, visit);
}

}  // namespace

int64_t LengthClass(int64_t rows) { return std::max(kShortestClass, PowerOfTwoFrom(rows)); }

BackwardCut CutBackward(const AttentionShape& shape, int64_t length_class, int64_t score_bytes) {
  const int64_t head_bytes = ScoreBytes(shape, length_class, length_class);
  if (head_bytes > score_bytes) {
    const int64_t fits = score_bytes / ScoreBytes(shape, 1, length_class);
    return {1, 1, std::max(kShortestClass, PowerOfTwoUpTo(fits))};
  }
  const int64_t heads = std::min(shape.num_kv_heads, score_bytes / head_bytes);
  if (heads < shape.num_kv_heads) return {1, heads, length_class};
  // A power of two, as documents of one length often are, too: 8 and 8, not 9 and 7.
  const int64_t documents = std::max<int64_t>(
      1, PowerOfTwoUpTo(score_bytes / (PlanBytes(shape, length_class, length_class) * heads)));
  return {std::min({documents, Call::kMaxDocuments, MostDocuments(shape.rows, length_class)}),
          heads, length_class};
}

int64_t BackwardPlanBytes(const AttentionShape& shape, int64_t length_class, int64_t score_bytes) {
  const BackwardCut cut = CutBackward(shape, length_class, score_bytes);
  return cut.batch * cut.num_kv_heads * PlanBytes(shape, cut.queries, length_class);
}

int64_t SummandBytes(const AttentionShape& shape, int64_t length_class, int64_t score_bytes) {
  if (CutBackward(shape, length_class, score_bytes).queries == length_class) return 0;
  return 2 * length_class * shape.head_dim * (kBf16Bytes + static_cast<int64_t>(sizeof(float)));
}

absl::Status ForEachForwardCall(const AttentionShape& shape, const int32_t* starts,
                                int64_t num_documents, VisitCall visit) {
  Call call{.batch = 0,
            .queries = 0,
            .keys = 0,
            .first_kv_head = 0,
            .num_kv_heads = shape.num_kv_heads,
            .count = 0,
            .parts = {}};
  int64_t longest = 0;
  const auto flush = [&] {
    call.batch = PowerOfTwoFrom(call.count);
    call.queries = call.keys = LengthClass(longest);
    absl::Status status = visit(call);
    call.count = longest = 0;
    return status;
  };
  for (int64_t document = 0; document < num_documents; ++document) {
    const int32_t begin = starts[document], rows = starts[document + 1] - begin;
    if (rows == 0) continue;
    call.parts[call.count++] = {begin, rows, begin, rows};
    longest = std::max<int64_t>(longest, rows);
    if (call.count == Call::kMaxDocuments) PENSTOCK_RETURN_IF_ERROR(flush());
  }
  return call.count == 0 ? absl::OkStatus() : flush();
}

absl::Status ForEachBackwardCall(const AttentionShape& shape, int64_t window, const int32_t* starts,
                                 int64_t num_documents, int64_t score_bytes, VisitCall visit) {
  int64_t longest = 0;
  for (int64_t document = 0; document < num_documents; ++document) {
    longest = std::max<int64_t>(longest, starts[document + 1] - starts[document]);
  }
  const int64_t last = longest == 0 ? 0 : LengthClass(longest);
  for (int64_t length_class = kShortestClass; length_class <= last; length_class *= 2) {
    PENSTOCK_RETURN_IF_ERROR(VisitClass(shape, window, starts, num_documents, length_class,
                                        CutBackward(shape, length_class, score_bytes), visit));
  }
  return absl::OkStatus();
}

}  // namespace penstock::attention

namespace penstock {

int64_t CudaAttentionScratchBytes(const AttentionShape& shape) {
  // cuDNN aligns its arrays and adds a few small ones; measured: under 1 KiB.
  constexpr int64_t kRounding = int64_t{1} << 20;
  const int64_t row_sums = shape.rows * shape.num_heads * static_cast<int64_t>(sizeof(float));
  if (shape.rows == 0 || shape.num_kv_heads == 0) return row_sums;
  int64_t largest = 0;
  const int64_t last = attention::LengthClass(shape.rows);
  for (int64_t length_class = attention::kShortestClass; length_class <= last; length_class *= 2) {
    largest = std::max(largest,
                       attention::BackwardPlanBytes(shape, length_class, attention::kScoreBytes) +
                           attention::SummandBytes(shape, length_class, attention::kScoreBytes));
  }
  return std::max(row_sums, attention::kTableBytes + largest + kRounding);
}

}  // namespace penstock
