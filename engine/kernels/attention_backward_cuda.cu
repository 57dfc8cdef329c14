// Attention, backward, on CUDA. Two kernels, each of which computes the probabilities again from
// lse, so that no sum needs atomics and every sum has one order:
//   queries  a block has 128 queries of one head: delta = dot(dout, out), then dq over key tiles;
//   keys     a block has 64 keys of one key/value head: dk and dv over the heads that share it
//            and over the query tiles that see it. It works on transposed scores [keys, queries],
//            whose registers are then the first operand of dv and dk.
// That is 7 products a pair of tiles where atomics would allow 5. Heads of more than 128 elements
// have smaller tiles, and as dk and dv of all their elements would not fit the registers, two
// blocks sum half the elements each, of scores that both compute: 9 products.
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_cudnn.h"
#include "engine/kernels/attention_launch_cuda.h"
#include "engine/kernels/attention_tiles_cuda.cuh"

namespace penstock {
namespace {

using namespace cuda::attention;  // NOLINT(google-build-using-namespace): of this op only
using cuda::kWarp;

// Scores are made for so many rows of the other tile at a time: more would not fit the registers.
template <int kDim>
constexpr int kPart = kDim <= 128 ? 32 : 16;
template <int kDim>
constexpr int kPartBlocks = kPart<kDim> / 8;

// A kernel's own two tiles, and two stages of two tiles of the others; then rows' lse and delta.
constexpr int SharedBytes(int dim, int own_rows, int other_rows, int row_sums) {
  return (2 * own_rows + 4 * other_rows) * dim * static_cast<int>(sizeof(bf16)) +
         2 * row_sums * static_cast<int>(sizeof(float));
}

template <int kDim>
struct QueriesTuning {
  static constexpr int kRowTiles = kDim <= 128 ? 2 : 1;  // of 16 queries, a warp
  static constexpr int kQueries = kWarps * 16 * kRowTiles;
  static constexpr int kKeys = kPart<kDim>;
  static constexpr int kSharedBytes = SharedBytes(kDim, kQueries, kKeys, kQueries);
  static_assert(kSharedBytes <= kMostSharedBytes);
};
template <int kDim>
struct KeysTuning {
  static constexpr int kKeys = kWarps * 16;  // 16 a warp: dk and dv take the registers
  static constexpr int kQueries = kDim <= 128 ? 64 : 16;
  // Elements of a head whose dk and dv one block sums, and blocks that share a tile of keys.
  static constexpr int kColumns = kDim <= 128 ? kDim : 128;
  static constexpr int kShares = kDim / kColumns;
  static constexpr int kSharedBytes = SharedBytes(kDim, kKeys, kQueries, 2 * kQueries);
  static_assert(kSharedBytes <= kMostSharedBytes);
};

struct BackwardParams {
  AttentionBackwardArgs<bf16> args;
  float* delta;  // [rows, num_heads]
  bool wide;
};

struct HeadViews {
  HeadView q, k, v, dout;
};

__device__ HeadViews ViewsOf(const BackwardParams& params, int head, int kv_head) {
  const AttentionBackwardArgs<bf16>& args = params.args;
  const int head_dim = static_cast<int>(args.head_dim);
  return {{args.q + head * head_dim, args.q_stride, head_dim, params.wide},
          {args.k + kv_head * head_dim, args.k_stride, head_dim, params.wide},
          {args.v + kv_head * head_dim, args.v_stride, head_dim, params.wide},
          {args.dout + head * head_dim, args.num_heads * head_dim, head_dim, params.wide}};
}

// dot(dout, out) of one row and head.
__device__ float DotOutputs(const BackwardParams& params, int64_t at) {
  const AttentionBackwardArgs<bf16>& args = params.args;
  float sum = 0;
  if (params.wide) {
    for (int64_t i = 0; i < args.head_dim; i += cuda::kWide) {
      float dout[cuda::kWide], out[cuda::kWide];
      cuda::Load(args.dout + at + i, dout);
      cuda::Load(args.out + at + i, out);
#pragma unroll
      for (int j = 0; j < cuda::kWide; ++j) sum += dout[j] * out[j];
    }
  } else {
    for (int64_t i = 0; i < args.head_dim; ++i) {
      sum += cuda::DeviceFloat(args.dout[at + i]) * cuda::DeviceFloat(args.out[at + i]);
    }
  }
  return sum;
}

// A thread for each row. Rows past the document get lse = Inf, which makes their probabilities 0.
template <int kQueries>
__device__ void PrepareRows(const BackwardParams& params, const Tile& tile, int head, float* lse,
                            float* delta) {
  static_assert(kQueries <= kThreads);
  const int local = static_cast<int>(threadIdx.x);
  if (local >= kQueries) return;
  const int row = tile.begin + local;
  const bool inside = row < tile.document_end;
  const int64_t at = row * params.args.num_heads + head;
  lse[local] = inside ? params.args.lse[at] * kLog2E : kInfinity;
  delta[local] = inside ? DotOutputs(params, at * params.args.head_dim) : 0.0f;
  if (inside) params.delta[at] = delta[local];
}

// From scores and dp = dout v^T of 16 queries to ds = p (dp - delta), in the place of the scores.
template <int kBlocks>
__device__ void ScoreGradients(float (&scores)[kBlocks][4], const float (&dp)[kBlocks][4],
                               float scale, const float (&lse)[2], const float (&delta)[2]) {
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float p = Exp2(scores[block][i] * scale - lse[i / 2]);
      scores[block][i] = p * (dp[block][i] - delta[i / 2]);
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads)
    AttentionBackwardQueriesKernel(const BackwardParams params) {
  extern __shared__ __align__(128) unsigned char shared[];
  using Tuning = QueriesTuning<kDim>;
  constexpr int kRowTiles = Tuning::kRowTiles, kQueries = Tuning::kQueries;
  constexpr int kKeys = Tuning::kKeys, kElements = kKeys * kDim, kBlocks = kPartBlocks<kDim>;
  const AttentionBackwardArgs<bf16>& args = params.args;
  const int slot = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const Tile tile =
      TileOfSlot<kQueries>(args.document_starts, static_cast<int>(args.num_documents), slot);
  if (tile.count == 0) return;
  bf16* queries = reinterpret_cast<bf16*>(shared);
  bf16* douts = queries + kQueries * kDim;
  bf16* keys = douts + kQueries * kDim;  // two stages of kElements
  bf16* values = keys + 2 * kElements;   // likewise
  float* row_lse = reinterpret_cast<float*>(values + 2 * kElements);
  float* row_delta = row_lse + kQueries;
  const int window = static_cast<int>(args.window), head = static_cast<int>(blockIdx.y);
  const int kv_head = head / static_cast<int>(args.num_heads / args.num_kv_heads);
  const HeadViews views = ViewsOf(params, head, kv_head);

  const int end = tile.begin + tile.count;  // of the keys too
  int begin =
      TileBegin<kKeys>(tile.document_begin, FirstKey(tile.document_begin, tile.begin, window));
  LoadTile<kDim, kQueries>(views.q, tile.begin, tile.document_end, queries);
  LoadTile<kDim, kQueries>(views.dout, tile.begin, tile.document_end, douts);
  LoadTile<kDim, kKeys>(views.k, begin, tile.document_end, keys);
  LoadTile<kDim, kKeys>(views.v, begin, tile.document_end, values);
  CommitLoads();
  PrepareRows<kQueries>(params, tile, head, row_lse, row_delta);
  __syncthreads();
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16 * kRowTiles;
  const int first_query = tile.begin + warp_row;
  const int own_row = warp_row + static_cast<int>(threadIdx.x) % kWarp / 4;
  float lse[kRowTiles][2], delta[kRowTiles][2];
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    lse[i / 2][i % 2] = row_lse[own_row + 8 * i];
    delta[i / 2][i % 2] = row_delta[own_row + 8 * i];
  }
  const float scale = args.scale * kLog2E;
  Sums<kRowTiles, kDim / 8> dq = {};
  for (int stage = 0; begin < end; begin += kKeys, stage ^= 1) {
    if (begin + kKeys < end) {
      const int next = (stage ^ 1) * kElements;
      LoadTile<kDim, kKeys>(views.k, begin + kKeys, tile.document_end, keys + next);
      LoadTile<kDim, kKeys>(views.v, begin + kKeys, tile.document_end, values + next);
    }
    CommitLoads();
    WaitForLoads<1>();
    __syncthreads();
    if (begin < first_query + 16 * kRowTiles) {  // else all of these keys come after the queries
      Sums<kRowTiles, kBlocks> scores, dp;
      MultiplyRows<kDim, kRowTiles, kBlocks>(queries, warp_row, keys + stage * kElements, 0,
                                             scores);
      MultiplyRows<kDim, kRowTiles, kBlocks>(douts, warp_row, values + stage * kElements, 0, dp);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        if (begin + kKeys > first_query || window > 0) {
          MaskScores<ScoreRows::kQueries>(scores[i], tile.document_begin, first_query + 16 * i,
                                          begin, window);
        }
        ScoreGradients(scores[i], dp[i], scale, lse[i], delta[i]);
      }
      AddWeightedRows<kDim, kDim, kRowTiles, kBlocks>(scores, keys + stage * kElements, 0, 0, dq);
    }
    __syncthreads();  // before the next copy overwrites this stage
  }
  const float factor[2] = {args.scale, args.scale};
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
    StoreRows<kDim>(dq[i], factor, args.dq + head * args.head_dim, args.dq_stride,
                    static_cast<int>(args.head_dim), first_query + 16 * i, tile.document_end);
  }
}

// A tile of queries of one head, as the keys kernel walks them.
template <int kDim>
struct QueryStage {
  bf16* queries;
  bf16* douts;
  float* lse;
  float* delta;
};

template <int kDim>
__device__ void LoadQueries(const BackwardParams& params, const HeadViews& views, int head,
                            int begin, int end, const QueryStage<kDim>& stage) {
  constexpr int kQueries = KeysTuning<kDim>::kQueries;
  LoadTile<kDim, kQueries>(views.q, begin, end, stage.queries);
  LoadTile<kDim, kQueries>(views.dout, begin, end, stage.douts);
  for (int local = threadIdx.x; local < kQueries; local += kThreads) {
    const int64_t at = (begin + local) * params.args.num_heads + head;
    const bool inside = begin + local < end;
    stage.lse[local] = inside ? params.args.lse[at] * kLog2E : kInfinity;
    stage.delta[local] = inside ? params.delta[at] : 0.0f;
  }
}

// From transposed scores and dp [16 keys, kPart queries] to p and ds, in their places.
template <int kDim, int kBlocks>
__device__ void TransposedGradients(float (&scores)[kBlocks][4], float (&dp)[kBlocks][4],
                                    float scale, const QueryStage<kDim>& stage, int part) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int local = part + block * 8 + lane % 4 * 2 + i % 2;
      const float p = Exp2(scores[block][i] * scale - stage.lse[local]);
      scores[block][i] = p;
      dp[block][i] = p * (dp[block][i] - stage.delta[local]);
    }
  }
}

// Stage 0 or 1 of the query tiles that lie behind the block's own two.
template <int kDim>
__device__ QueryStage<kDim> StageOf(bf16* tiles, int stage) {
  constexpr int kQueries = KeysTuning<kDim>::kQueries, kElements = kQueries * kDim;
  float* floats = reinterpret_cast<float*>(tiles + 4 * kElements) + stage * 2 * kQueries;
  return {tiles + stage * 2 * kElements, tiles + (stage * 2 + 1) * kElements, floats,
          floats + kQueries};
}

// Query tiles from the keys' own to the last that sees one of them.
template <int kQueries>
__device__ int QueryTiles(const Tile& tile, int window) {
  const int64_t last_seen =
      window == 0 ? tile.document_end - 1 : int64_t{tile.begin} + tile.count + window - 2;
  const int last =
      static_cast<int>(last_seen < tile.document_end - 1 ? last_seen : tile.document_end - 1);
  return (last - tile.begin) / kQueries + 1;
}

template <int kDim>
__global__ void __launch_bounds__(kThreads)
    AttentionBackwardKeysKernel(const BackwardParams params) {
  extern __shared__ __align__(128) unsigned char shared[];
  using Tuning = KeysTuning<kDim>;
  constexpr int kKeys = Tuning::kKeys, kQueries = Tuning::kQueries;
  constexpr int kColumns = Tuning::kColumns, kBlocks = kPartBlocks<kDim>;
  const AttentionBackwardArgs<bf16>& args = params.args;
  const Tile tile = TileOfSlot<kKeys>(args.document_starts, static_cast<int>(args.num_documents),
                                      static_cast<int>(blockIdx.x));
  if (tile.count == 0) return;
  bf16* keys = reinterpret_cast<bf16*>(shared);
  bf16* values = keys + kKeys * kDim;
  bf16* others = values + kKeys * kDim;
  const int window = static_cast<int>(args.window), kv_head = static_cast<int>(blockIdx.y);
  const int first_column = Tuning::kShares == 1 ? 0 : static_cast<int>(blockIdx.z) * kColumns;
  const int group = static_cast<int>(args.num_heads / args.num_kv_heads);
  const int tiles = QueryTiles<kQueries>(tile, window);
  const int steps = group * tiles;  // heads of the group, and their tiles inside

  const auto load = [&](int step) {
    const int head = kv_head * group + step / tiles;
    LoadQueries(params, ViewsOf(params, head, kv_head), head, tile.begin + step % tiles * kQueries,
                tile.document_end, StageOf<kDim>(others, step % 2));
  };
  const HeadViews own = ViewsOf(params, kv_head * group, kv_head);
  LoadTile<kDim, kKeys>(own.k, tile.begin, tile.document_end, keys);
  LoadTile<kDim, kKeys>(own.v, tile.begin, tile.document_end, values);
  load(0);
  CommitLoads();
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
  const float scale = args.scale * kLog2E;
  Sums<1, kColumns / 8> dk = {}, dv = {};
  for (int step = 0; step < steps; ++step) {
    const QueryStage<kDim> stage = StageOf<kDim>(others, step % 2);
    if (step + 1 < steps) load(step + 1);
    CommitLoads();
    WaitForLoads<1>();
    __syncthreads();
    const int offset = step % tiles * kQueries;  // of the queries, from the keys on
#pragma unroll
    for (int part = 0; part < kQueries; part += kPart<kDim>) {
      Sums<1, kBlocks> scores, dp;
      MultiplyRows<kDim, 1, kBlocks>(keys, warp_row, stage.queries, part, scores);
      MultiplyRows<kDim, 1, kBlocks>(values, warp_row, stage.douts, part, dp);
      if (offset < kKeys || window > 0) {  // else all of these queries see all of the keys
        MaskScores<ScoreRows::kKeys>(scores[0], tile.document_begin, tile.begin + offset + part,
                                     tile.begin + warp_row, window);
      }
      TransposedGradients(scores[0], dp[0], scale, stage, part);
      AddWeightedRows<kDim, kColumns, 1, kBlocks>(scores, stage.douts, part, first_column, dv);
      AddWeightedRows<kDim, kColumns, 1, kBlocks>(dp, stage.queries, part, first_column, dk);
    }
    __syncthreads();  // before the next copy overwrites this stage
  }
  const float whole[2] = {1.0f, 1.0f}, scaled[2] = {args.scale, args.scale};
  const int head_dim = static_cast<int>(args.head_dim);
  const int at = kv_head * head_dim + first_column, count = head_dim - first_column;
  StoreRows<kColumns>(dv[0], whole, args.dv + at, args.dv_stride, count, tile.begin + warp_row,
                      tile.document_end);
  StoreRows<kColumns>(dk[0], scaled, args.dk + at, args.dk_stride, count, tile.begin + warp_row,
                      tile.document_end);
}

template <typename Kernel>
absl::Status LaunchOne(Kernel kernel, dim3 grid, int shared_bytes, cudaStream_t stream,
                       const BackwardParams& params) {
  PENSTOCK_RETURN_IF_ERROR(cuda::CudaStatus(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
      "AttentionBackward"));
  kernel<<<grid, kThreads, shared_bytes, stream>>>(params);
  return cuda::LaunchStatus("AttentionBackward");
}

template <int kDim>
absl::Status Launch(const cuda::Context& context, const BackwardParams& params) {
  const AttentionBackwardArgs<bf16>& args = params.args;
  using Queries = QueriesTuning<kDim>;
  using Keys = KeysTuning<kDim>;
  const int64_t query_slots = NumSlots<Queries::kQueries>(args.rows, args.num_documents);
  const dim3 query_grid(static_cast<unsigned>(query_slots), static_cast<unsigned>(args.num_heads));
  PENSTOCK_RETURN_IF_ERROR(LaunchOne(AttentionBackwardQueriesKernel<kDim>, query_grid,
                                     Queries::kSharedBytes, context.stream, params));
  const int64_t key_slots = NumSlots<Keys::kKeys>(args.rows, args.num_documents);
  const dim3 key_grid(static_cast<unsigned>(key_slots), static_cast<unsigned>(args.num_kv_heads),
                      Keys::kShares);
  return LaunchOne(AttentionBackwardKeysKernel<kDim>, key_grid, Keys::kSharedBytes, context.stream,
                   params);
}

}  // namespace

absl::Status cuda::attention::BackwardByKernels(const cuda::Context& context,
                                                const AttentionBackwardArgs<bf16>& args) {
  const bool wide = cuda::AllowsWide({args.q, args.k, args.v, args.dout, args.out},
                                     {args.q_stride, args.k_stride, args.v_stride, args.head_dim});
  const BackwardParams params{args, static_cast<float*>(args.scratch), wide};
  if (args.head_dim <= 64) return Launch<64>(context, params);
  if (args.head_dim <= 128) return Launch<128>(context, params);
  static_assert(kLargestCudaHeadDim == 256);
  return Launch<256>(context, params);
}

absl::Status AttentionBackward(const cuda::Context& context,
                               const AttentionBackwardArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(CheckContract("AttentionBackward", args));
  PENSTOCK_RETURN_IF_ERROR(RequireSizes("AttentionBackward", {{"dq_stride", args.dq_stride},
                                                              {"dk_stride", args.dk_stride},
                                                              {"dv_stride", args.dv_stride}}));
  const int64_t wanted = LeastCudaAttentionScratchBytes(args.rows, args.num_heads);
  PENSTOCK_RETURN_IF_ERROR(
      Require(wanted == 0 || (args.scratch != nullptr && args.scratch_bytes >= wanted),
              "AttentionBackward", "LeastCudaAttentionScratchBytes() of scratch",
              {{"scratch_bytes", args.scratch_bytes}, {"wanted", wanted}}));
  if (args.rows == 0 || args.num_heads == 0) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(Require(
      args.dout != nullptr && args.dq != nullptr && args.dk != nullptr && args.dv != nullptr,
      "AttentionBackward", "arrays dout, dq, dk and dv"));
  PENSTOCK_ASSIGN_OR_RETURN(const bool queued, BackwardByCudnn(context, args));
  return queued ? absl::OkStatus() : BackwardByKernels(context, args);
}

}  // namespace penstock
