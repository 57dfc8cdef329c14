// Backward, in two passes that each own what they write: dq by tiles of queries, then dk and dv
// by tiles of keys. Scores and probabilities are computed in both, which costs two more products
// than one pass would (seven instead of five) and buys work for every thread on one long
// document, no partial sums and one order of addition.
//
//   p  = exp(s - lse)      dp = dout v^T      delta[q] = dot(dout[q], out[q])
//   ds = p * (dp - delta) * scale             dq = ds k      dk = ds^T q      dv = p^T dout

#include "engine/base/thread_pool.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_contract.h"
#include "engine/kernels/attention_tiles.h"
#include "engine/kernels/blas.h"
#include "engine/kernels/vector_math.h"

namespace penstock {
namespace {

using attention::kTile;
using attention::Tile;
using attention::Visible;

using Args = AttentionBackwardArgs<float>;

// One worker's two tiles [queries, keys] with row stride kTile.
struct Scratch {
  float* p;
  float* ds;
};

struct Heads {
  int64_t query, kv;
};

struct Keys {
  int64_t begin, count;
};

const float* QueryRows(const Args& args, int64_t row, int64_t head) {
  return args.q + row * args.q_stride + head * args.head_dim;
}
const float* KeyRows(const Args& args, int64_t row, int64_t kv_head) {
  return args.k + row * args.k_stride + kv_head * args.head_dim;
}
const float* ValueRows(const Args& args, int64_t row, int64_t kv_head) {
  return args.v + row * args.v_stride + kv_head * args.head_dim;
}
const float* OutputGradientRows(const Args& args, int64_t row, int64_t head) {
  return args.dout + (row * args.num_heads + head) * args.head_dim;
}

// p holds scores and ds holds dp on entry.
struct ScoreGradients {
  PENSTOCK_ISA_BODY void Run(const Args& args, const Tile& queries, int64_t head, const Keys& keys,
                             const Scratch& scratch) {
    for (int64_t i = 0; i < queries.count; ++i) {
      const int64_t query = queries.begin + i;
      const float* out = args.out + (query * args.num_heads + head) * args.head_dim;
      const float* dout = args.dout + (query * args.num_heads + head) * args.head_dim;
      const float lse = args.lse[query * args.num_heads + head];
      const float delta = static_cast<float>(LaneSum(
          args.head_dim, [=](int64_t d)
                             __attribute__((always_inline)) { return double{dout[d]} * out[d]; }));
      const Visible visible = attention::VisibleKeys(queries.document_begin, query, args.window,
                                                     keys.begin, keys.count);
      float* __restrict p = scratch.p + i * kTile;
      float* __restrict ds = scratch.ds + i * kTile;
      for (int64_t k = 0; k < keys.count; ++k) {
        const bool seen = k >= visible.begin && k < visible.end;
        const float probability = Exp(p[k] - lse);
        p[k] = seen ? probability : 0.0f;
        ds[k] = seen ? probability * (ds[k] - delta) * args.scale : 0.0f;
      }
    }
  }
};

void ComputeTile(const Args& args, const Tile& queries, const Keys& keys, const Heads& heads,
                 const Scratch& scratch) {
  Sgemm(queries.count, keys.count, args.head_dim, args.scale,
        {QueryRows(args, queries.begin, heads.query), args.q_stride},
        {KeyRows(args, keys.begin, heads.kv), args.k_stride, Transpose::kYes}, 0.0f, scratch.p,
        kTile);
  Sgemm(queries.count, keys.count, args.head_dim, 1.0f,
        {OutputGradientRows(args, queries.begin, heads.query), args.num_heads * args.head_dim},
        {ValueRows(args, keys.begin, heads.kv), args.v_stride, Transpose::kYes}, 0.0f, scratch.ds,
        kTile);
  RunForIsa<ScoreGradients>(args, queries, heads.query, keys, scratch);
}

void QueryGradientTile(const Args& args, const Tile& queries, int64_t head,
                       const Scratch& scratch) {
  const Heads heads{head, head / (args.num_heads / args.num_kv_heads)};
  const int64_t first_key = attention::FirstKey(queries.document_begin, queries.begin, args.window);
  const int64_t first_tile = attention::TileBegin(queries.document_begin, first_key);
  const int64_t keys_end = queries.begin + queries.count;
  float* dq = args.dq + queries.begin * args.dq_stride + head * args.head_dim;
  for (int64_t begin = first_tile; begin < keys_end; begin += kTile) {
    const Keys keys{begin, std::min(kTile, keys_end - begin)};
    ComputeTile(args, queries, keys, heads, scratch);
    Sgemm(queries.count, args.head_dim, keys.count, 1.0f, {scratch.ds, kTile},
          {KeyRows(args, begin, heads.kv), args.k_stride}, begin == first_tile ? 0.0f : 1.0f, dq,
          args.dq_stride);
  }
}

void KeyGradientTile(const Args& args, const Tile& tile, int64_t kv_head, const Scratch& scratch) {
  const int64_t group = args.num_heads / args.num_kv_heads;
  const Keys keys{tile.begin, tile.count};
  // The last query that sees a key of this tile, plus one.
  const int64_t last_key = tile.begin + tile.count - 1;
  const int64_t queries_end =
      args.window == 0 ? tile.document_end : std::min(tile.document_end, last_key + args.window);
  float* dk = args.dk + tile.begin * args.dk_stride + kv_head * args.head_dim;
  float* dv = args.dv + tile.begin * args.dv_stride + kv_head * args.head_dim;
  float beta = 0.0f;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int64_t begin = tile.begin; begin < queries_end; begin += kTile) {
      Tile queries = tile;
      queries.begin = begin;
      queries.count = std::min(kTile, tile.document_end - begin);
      ComputeTile(args, queries, keys, {head, kv_head}, scratch);
      Sgemm(keys.count, args.head_dim, queries.count, 1.0f, {scratch.ds, kTile, Transpose::kYes},
            {QueryRows(args, begin, head), args.q_stride}, beta, dk, args.dk_stride);
      Sgemm(keys.count, args.head_dim, queries.count, 1.0f, {scratch.p, kTile, Transpose::kYes},
            {OutputGradientRows(args, begin, head), args.num_heads * args.head_dim}, beta, dv,
            args.dv_stride);
      beta = 1.0f;
    }
  }
}

}  // namespace

absl::Status AttentionBackward(const cpu::Context& context, const Args& args) {
  PENSTOCK_RETURN_IF_ERROR(attention::CheckContract("AttentionBackward", context, args));
  PENSTOCK_RETURN_IF_ERROR(RequireSizes("AttentionBackward", {{"dq_stride", args.dq_stride},
                                                              {"dk_stride", args.dk_stride},
                                                              {"dv_stride", args.dv_stride}}));
  PENSTOCK_RETURN_IF_ERROR(Require(args.rows == 0 || (args.dout != nullptr && args.dq != nullptr &&
                                                      args.dk != nullptr && args.dv != nullptr),
                                   "AttentionBackward", "arrays dout, dq, dk and dv"));
  if (args.rows == 0) return absl::OkStatus();
  const int64_t slots = attention::NumSlots(args.rows, args.num_documents);
  const auto scratch_of = [&](int worker) {
    float* tiles = static_cast<float*>(args.scratch) +
                   worker * attention::kTilesPerWorker * attention::kTileElements;
    return Scratch{tiles, tiles + attention::kTileElements};
  };
  // Tasks with the most tiles first: late queries, early keys.
  context.pool->ParallelFor(slots * args.num_heads, [&](int64_t task, int worker) {
    const Tile queries = attention::TileOfSlot(args.document_starts, args.num_documents,
                                               slots - 1 - task / args.num_heads);
    if (queries.count == 0) return;
    QueryGradientTile(args, queries, task % args.num_heads, scratch_of(worker));
  });
  context.pool->ParallelFor(slots * args.num_kv_heads, [&](int64_t task, int worker) {
    const Tile keys =
        attention::TileOfSlot(args.document_starts, args.num_documents, task / args.num_kv_heads);
    if (keys.count == 0) return;
    KeyGradientTile(args, keys, task % args.num_kv_heads, scratch_of(worker));
  });
  return absl::OkStatus();
}

}  // namespace penstock
