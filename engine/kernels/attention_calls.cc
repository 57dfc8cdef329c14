#include "engine/kernels/attention_calls.h"

#include <algorithm>

#include "engine/base/status.h"

namespace penstock::attention {
namespace {

constexpr int64_t kBf16Bytes = 2, kFloatBytes = 4;
// Calls of smaller blocks would be slower than our own kernels.
constexpr int64_t kShortestBlock = 1024;

int64_t PowerOfTwoFrom(int64_t value) {
  int64_t power = 1;
  while (power < value) power *= 2;
  return power;
}

int64_t PowerOfTwoUpTo(int64_t value) { return PowerOfTwoFrom(value + 1) / 2; }

// Of one document and one key/value head's query heads: gradients of scores, dk and dv of each
// query head unless it has a key/value head of its own, sums of rows.
int64_t GroupBytes(const AttentionShape& shape, int64_t length_class) {
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  const int64_t scores = length_class * length_class * kBf16Bytes;
  const int64_t gradients = group == 1 ? 0 : 2 * length_class * shape.head_dim * kBf16Bytes;
  const int64_t row_sums = length_class * static_cast<int64_t>(sizeof(float));
  return group * (scores + gradients + row_sums);
}

// The most documents of a class that `rows` rows can hold, rounded up so that plans are few.
int64_t MostDocuments(int64_t rows, int64_t length_class) {
  const int64_t shortest = length_class == kShortestClass ? 1 : length_class / 2 + 1;
  return PowerOfTwoFrom(rows / shortest);
}

absl::Status VisitHeads(const BackwardCut& cut, const AttentionShape& shape, Call& call,
                        VisitCall visit) {
  for (int64_t head = 0; head < shape.num_kv_heads; head += cut.num_kv_heads) {
    call.first_kv_head = head;
    call.num_kv_heads = std::min(cut.num_kv_heads, shape.num_kv_heads - head);
    PENSTOCK_RETURN_IF_ERROR(visit(call));
  }
  call.count = 0;
  return absl::OkStatus();
}

absl::Status VisitClass(const AttentionShape& shape, const int32_t* starts, int64_t num_documents,
                        int64_t length_class, const BackwardCut& cut, VisitCall visit,
                        VisitDocument visit_long) {
  Call call{.batch = cut.batch,
            .longest = length_class,
            .first_kv_head = 0,
            .num_kv_heads = 0,
            .count = 0,
            .documents = {}};
  for (int64_t i = 0; i < num_documents; ++i) {
    const Document document{starts[i], starts[i + 1] - starts[i]};
    if (document.rows == 0 || LengthClass(document.rows) != length_class) continue;
    if (cut.batch == 0) {
      PENSTOCK_RETURN_IF_ERROR(visit_long(document));
      continue;
    }
    call.documents[call.count++] = document;
    if (call.count == cut.batch) PENSTOCK_RETURN_IF_ERROR(VisitHeads(cut, shape, call, visit));
  }
  return call.count == 0 ? absl::OkStatus() : VisitHeads(cut, shape, call, visit);
}

int64_t LongestDocument(const int32_t* starts, int64_t num_documents) {
  int64_t longest = 0;
  for (int64_t i = 0; i < num_documents; ++i) {
    longest = std::max<int64_t>(longest, starts[i + 1] - starts[i]);
  }
  return longest;
}

}  // namespace

int64_t LengthClass(int64_t rows) { return std::max(kShortestClass, PowerOfTwoFrom(rows)); }

BackwardCut CutBackward(const AttentionShape& shape, int64_t length_class, int64_t bytes) {
  const int64_t group_bytes = GroupBytes(shape, length_class);
  const int64_t heads = std::min(shape.num_kv_heads, bytes / group_bytes);
  if (heads <= 0) return {0, 0};
  if (heads < shape.num_kv_heads) return {1, heads};
  // A power of two, as documents of one length often are, too: 8 and 8, not 9 and 7.
  const int64_t fit = PowerOfTwoUpTo(bytes / (group_bytes * heads));
  return {std::min({fit, Call::kMaxDocuments, MostDocuments(shape.rows, length_class)}), heads};
}

int64_t BackwardPlanBytes(const AttentionShape& shape, int64_t length_class,
                          const BackwardCut& cut) {
  return cut.batch * cut.num_kv_heads * GroupBytes(shape, length_class);
}

BlockScratch PlaceBlocks(const AttentionShape& shape, int64_t rows, const BlockCut& cut) {
  const int64_t kv_width = cut.num_kv_heads * shape.head_dim;
  const int64_t q_width = kv_width * (shape.num_heads / shape.num_kv_heads);
  BlockScratch scratch{};
  const auto place = [&scratch](int64_t bytes) {
    constexpr int64_t kAlignment = 256;
    const int64_t begin = scratch.bytes;
    scratch.bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  };
  scratch.dk_sum = place(rows * kv_width * kFloatBytes);
  scratch.dv_sum = place(rows * kv_width * kFloatBytes);
  scratch.dq_sum = place(cut.block * q_width * kFloatBytes);
  scratch.dq_part = place(cut.block * q_width * kBf16Bytes);
  scratch.dk_part = place(cut.block * kv_width * kBf16Bytes);
  scratch.dv_part = place(cut.block * kv_width * kBf16Bytes);
  scratch.plan = place(BackwardPlanBytes(shape, cut.block, {1, cut.num_kv_heads}));
  return scratch;
}

BlockCut CutIntoBlocks(const AttentionShape& shape, int64_t rows, int64_t bytes) {
  // Without groups cuDNN lays gradients out as what they are of (attention_cudnn_cuda.cc), and
  // partial ones here are laid out on their own.
  if (shape.num_heads == shape.num_kv_heads) return {0, 0};
  for (int64_t block = PowerOfTwoUpTo(rows); block >= kShortestBlock; block /= 2) {
    for (int64_t heads = shape.num_kv_heads; heads > 0; --heads) {
      if (shape.num_kv_heads % heads != 0) continue;
      if (PlaceBlocks(shape, rows, {block, heads}).bytes <= bytes) return {block, heads};
    }
  }
  return {0, 0};
}

absl::Status ForEachForwardCall(const AttentionShape& shape, const int32_t* starts,
                                int64_t num_documents, VisitCall visit) {
  Call call{.batch = 0,
            .longest = 0,
            .first_kv_head = 0,
            .num_kv_heads = shape.num_kv_heads,
            .count = 0,
            .documents = {}};
  int64_t longest = 0;
  const auto flush = [&] {
    call.batch = PowerOfTwoFrom(call.count);
    call.longest = LengthClass(longest);
    absl::Status status = visit(call);
    call.count = longest = 0;
    return status;
  };
  for (int64_t i = 0; i < num_documents; ++i) {
    const Document document{starts[i], starts[i + 1] - starts[i]};
    if (document.rows == 0) continue;
    call.documents[call.count++] = document;
    longest = std::max<int64_t>(longest, document.rows);
    if (call.count == Call::kMaxDocuments) PENSTOCK_RETURN_IF_ERROR(flush());
  }
  return call.count == 0 ? absl::OkStatus() : flush();
}

absl::Status ForEachBackwardCall(const AttentionShape& shape, const int32_t* starts,
                                 int64_t num_documents, int64_t bytes, VisitCall visit,
                                 VisitDocument visit_long) {
  const int64_t longest = LongestDocument(starts, num_documents);
  const int64_t last = longest == 0 ? 0 : LengthClass(longest);
  for (int64_t length_class = kShortestClass; length_class <= last; length_class *= 2) {
    PENSTOCK_RETURN_IF_ERROR(VisitClass(shape, starts, num_documents, length_class,
                                        CutBackward(shape, length_class, bytes), visit,
                                        visit_long));
  }
  return absl::OkStatus();
}

}  // namespace penstock::attention

namespace penstock {

int64_t CudaAttentionScratchBytes(const AttentionShape& shape) {
  const int64_t row_sums = LeastCudaAttentionScratchBytes(shape.rows, shape.num_heads);
  if (shape.rows == 0 || shape.num_heads == 0 || shape.num_kv_heads == 0 ||
      shape.head_dim > kLargestCudnnHeadDim) {
    return row_sums;
  }
  int64_t largest = 0;
  const int64_t last = attention::LengthClass(shape.rows);
  for (int64_t length_class = attention::kShortestClass; length_class <= last; length_class *= 2) {
    const attention::BackwardCut cut =
        attention::CutBackward(shape, length_class, attention::kMostPlanBytes);
    // A document of this class that goes by blocks makes use of all that it may.
    largest = cut.batch == 0
                  ? attention::kMostPlanBytes
                  : std::max(largest, attention::BackwardPlanBytes(shape, length_class, cut));
  }
  // Our own kernels' sums are not needed at the same time as a plan's workspace.
  return attention::kTableBytes + std::max(row_sums, largest + attention::kRoundingBytes);
}

}  // namespace penstock
