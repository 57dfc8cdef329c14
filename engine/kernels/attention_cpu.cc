// Forward: one task is one head of one tile of 64 queries. It walks the key tiles that these
// queries see, first to last, with the running maximum and sum of the online softmax; the
// output is accumulated where it belongs and divided at the end. Both products are sgemms.
#include <array>
#include <cmath>
#include <limits>

#include "engine/base/thread_pool.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_contract.h"
#include "engine/kernels/attention_tiles.h"
#include "engine/kernels/blas.h"
#include "engine/kernels/vector_math.h"

namespace penstock {
namespace {

using attention::FirstKey;
using attention::kTile;
using attention::Tile;
using attention::Visible;

struct RunningSoftmax {
  std::array<float, kTile> max;
  std::array<double, kTile> sum;
};

struct KeyTile {
  int64_t begin, count;
  bool first;  // nothing has been accumulated in the output yet
};

// Turns scores into exp(score - new maximum), zero where not visible, and brings the sum and the
// output so far to the new maximum.
struct SoftmaxStep {
  PENSTOCK_ISA_BODY void Run(const AttentionForwardArgs<float>& args, const Tile& queries,
                             const KeyTile& keys, float* scores, float* out, int64_t out_stride,
                             RunningSoftmax* running) {
    for (int64_t i = 0; i < queries.count; ++i) {
      const Visible visible = attention::VisibleKeys(queries.document_begin, queries.begin + i,
                                                     args.window, keys.begin, keys.count);
      float* row = scores + i * kTile;
      const int64_t count = std::max<int64_t>(0, visible.end - visible.begin);
      if (count == 0) {
        std::fill_n(row, keys.count, 0.0f);
        continue;
      }
      float* seen = row + visible.begin;
      const float tile_max = Max(seen, count);
      const float max = tile_max > running->max[i] ? tile_max : running->max[i];
      const float correction = Exp(running->max[i] - max);
      std::fill(row, seen, 0.0f);
      for (int64_t k = 0; k < count; ++k) seen[k] = Exp(seen[k] - max);
      std::fill(seen + count, row + keys.count, 0.0f);
      const double sum = LaneSum(
          count, [seen](int64_t k) __attribute__((always_inline)) { return seen[k]; });
      running->sum[i] = running->sum[i] * correction + sum;
      running->max[i] = max;
      if (!keys.first) {
        float* accumulated = out + i * out_stride;
        for (int64_t d = 0; d < args.head_dim; ++d) accumulated[d] *= correction;
      }
    }
  }
};

void ForwardTile(const AttentionForwardArgs<float>& args, const Tile& queries, int64_t head,
                 float* scores) {
  const int64_t kv_head = head / (args.num_heads / args.num_kv_heads);
  const int64_t out_stride = args.num_heads * args.head_dim;
  float* out = args.out + queries.begin * out_stride + head * args.head_dim;
  RunningSoftmax running;
  running.max.fill(-std::numeric_limits<float>::infinity());
  running.sum.fill(0.0);
  const int64_t first_key = FirstKey(queries.document_begin, queries.begin, args.window);
  const int64_t first_tile = attention::TileBegin(queries.document_begin, first_key);
  const int64_t keys_end = queries.begin + queries.count;
  for (int64_t begin = first_tile; begin < keys_end; begin += kTile) {
    const KeyTile keys{begin, std::min(kTile, keys_end - begin), begin == first_tile};
    Sgemm(
        queries.count, keys.count, args.head_dim, args.scale,
        {args.q + queries.begin * args.q_stride + head * args.head_dim, args.q_stride},
        {args.k + begin * args.k_stride + kv_head * args.head_dim, args.k_stride, Transpose::kYes},
        0.0f, scores, kTile);
    RunForIsa<SoftmaxStep>(args, queries, keys, scores, out, out_stride, &running);
    Sgemm(queries.count, args.head_dim, keys.count, 1.0f, {scores, kTile},
          {args.v + begin * args.v_stride + kv_head * args.head_dim, args.v_stride},
          keys.first ? 0.0f : 1.0f, out, out_stride);
  }
  for (int64_t i = 0; i < queries.count; ++i) {
    const float inverse = static_cast<float>(1.0 / running.sum[i]);
    for (int64_t d = 0; d < args.head_dim; ++d) out[i * out_stride + d] *= inverse;
    args.lse[(queries.begin + i) * args.num_heads + head] =
        static_cast<float>(running.max[i] + std::log(running.sum[i]));
  }
}

}  // namespace

int64_t CpuAttentionScratchBytes(int threads) {
  return threads * attention::kTilesPerWorker * attention::kTileElements *
         static_cast<int64_t>(sizeof(float));
}

absl::Status AttentionForward(const cpu::Context& context,
                              const AttentionForwardArgs<float>& args) {
  PENSTOCK_RETURN_IF_ERROR(attention::CheckContract("AttentionForward", context, args));
  if (args.rows == 0) return absl::OkStatus();
  const int64_t slots = attention::NumSlots(args.rows, args.num_documents);
  context.pool->ParallelFor(slots * args.num_heads, [&](int64_t task, int worker) {
    // Last tiles first: they see the most keys, and short tasks fill the end.
    const Tile queries = attention::TileOfSlot(args.document_starts, args.num_documents,
                                               slots - 1 - task / args.num_heads);
    if (queries.count == 0) return;
    float* scores = static_cast<float*>(args.scratch) +
                    worker * attention::kTilesPerWorker * attention::kTileElements;
    ForwardTile(args, queries, task % args.num_heads, scores);
  });
  return absl::OkStatus();
}

}  // namespace penstock
