// Attention, backward, on CUDA. Two kernels, each of which computes the probabilities again from
// lse, so that no sum needs atomics and every sum has one order:
//   queries  a block has 64 queries of one head: delta = dot(dout, out), then dq over key tiles;
//   keys     a block has 64 keys of one key/value head: dk and dv over the heads that share it
//            and over the query tiles that see it. It works on transposed scores [keys, queries],
//            whose registers are then the first operand of dv and dk.
// That is 7 products a pair of tiles where atomics would allow 5.
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_launch_cuda.h"
#include "engine/kernels/attention_tiles_cuda.cuh"

namespace penstock {
namespace {

using namespace cuda::attention;  // NOLINT(google-build-using-namespace): of this op only
using cuda::kWarp;

// Scores are made for 32 rows of the other tile at a time: more would not fit the registers.
constexpr int kPart = 32;
constexpr int kPartBlocks = kPart / 8;

// Two tiles of its own and two stages of two tiles; the keys kernel adds lse and delta.
template <int kDim>
constexpr int kTileBytes = kTile* kDim* static_cast<int>(sizeof(bf16));
template <int kDim>
constexpr int kQueriesSharedBytes = 6 * kTileBytes<kDim> +
                                    2 * kTile* static_cast<int>(sizeof(float));
template <int kDim>
constexpr int kKeysSharedBytes = 6 * kTileBytes<kDim> + 4 * kTile* static_cast<int>(sizeof(float));

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

__device__ bool Sees(int query, int key, const Tile& tile, int window) {
  return key <= query && key >= FirstKey(tile.document_begin, query, window);
}

// Two threads a row. Rows past the document get lse = Inf, which makes their probabilities 0.
__device__ void PrepareRows(const BackwardParams& params, const Tile& tile, int head, float* lse,
                            float* delta) {
  const AttentionBackwardArgs<bf16>& args = params.args;
  const int local = static_cast<int>(threadIdx.x) / 2;
  const int row = tile.begin + local;
  const bool inside = row < tile.document_end;
  float sum = 0;
  if (inside) {
    const int64_t at = (row * args.num_heads + head) * args.head_dim;
    for (int64_t i = threadIdx.x % 2; i < args.head_dim; i += 2) {
      sum += cuda::DeviceFloat(args.dout[at + i]) * cuda::DeviceFloat(args.out[at + i]);
    }
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  if (threadIdx.x % 2 != 0) return;
  lse[local] = inside ? args.lse[row * args.num_heads + head] * kLog2E : kInfinity;
  delta[local] = sum;
  if (inside) params.delta[row * args.num_heads + head] = sum;
}

// From scores s and dp = dout v^T to ds = p (dp - delta), all [16 queries, kPart keys].
__device__ void ScoreGradients(float (&scores)[kPartBlocks][4], const float (&dp)[kPartBlocks][4],
                               float scale, const float (&lse)[2], const float (&delta)[2],
                               const Tile& tile, int first_query, int first_key, int window) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int block = 0; block < kPartBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int query = first_query + lane / 4 + i / 2 * 8;
      const int key = first_key + block * 8 + lane % 4 * 2 + i % 2;
      const float p =
          Sees(query, key, tile, window) ? exp2f(scores[block][i] * scale - lse[i / 2]) : 0.0f;
      scores[block][i] = p * (dp[block][i] - delta[i / 2]);
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads)
    AttentionBackwardQueriesKernel(const BackwardParams params) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int kElements = kTile * kDim;
  const AttentionBackwardArgs<bf16>& args = params.args;
  const int slot = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const Tile tile = TileOfSlot(args.document_starts, static_cast<int>(args.num_documents), slot);
  if (tile.count == 0) return;
  bf16* queries = reinterpret_cast<bf16*>(shared);
  bf16* douts = queries + kElements;
  bf16* keys[2] = {queries + 2 * kElements, queries + 3 * kElements};
  bf16* values[2] = {queries + 4 * kElements, queries + 5 * kElements};
  float* row_lse = reinterpret_cast<float*>(queries + 6 * kElements);
  float* row_delta = row_lse + kTile;
  const int window = static_cast<int>(args.window), head = static_cast<int>(blockIdx.y);
  const int kv_head = head / static_cast<int>(args.num_heads / args.num_kv_heads);
  const HeadViews views = ViewsOf(params, head, kv_head);

  int begin = TileBegin(tile.document_begin, FirstKey(tile.document_begin, tile.begin, window));
  LoadTile<kDim>(views.q, tile.begin, tile.document_end, queries);
  LoadTile<kDim>(views.dout, tile.begin, tile.document_end, douts);
  LoadTile<kDim>(views.k, begin, tile.document_end, keys[0]);
  LoadTile<kDim>(views.v, begin, tile.document_end, values[0]);
  CommitLoads();
  PrepareRows(params, tile, head, row_lse, row_delta);
  __syncthreads();
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
  const int own_row = warp_row + static_cast<int>(threadIdx.x) % kWarp / 4;
  const float lse[2] = {row_lse[own_row], row_lse[own_row + 8]};
  const float delta[2] = {row_delta[own_row], row_delta[own_row + 8]};
  const float scale = args.scale * kLog2E;
  float dq[kDim / 8][4] = {};
  for (int stage = 0; begin <= tile.begin; begin += kTile, stage ^= 1) {
    if (begin < tile.begin) {
      LoadTile<kDim>(views.k, begin + kTile, tile.document_end, keys[stage ^ 1]);
      LoadTile<kDim>(views.v, begin + kTile, tile.document_end, values[stage ^ 1]);
    }
    CommitLoads();
    WaitForLoads<1>();
    __syncthreads();
#pragma unroll
    for (int part = 0; part < kTile; part += kPart) {
      float scores[kPartBlocks][4], dp[kPartBlocks][4];
      MultiplyRows<kDim>(queries, warp_row, keys[stage], part, scores);
      MultiplyRows<kDim>(douts, warp_row, values[stage], part, dp);
      ScoreGradients(scores, dp, scale, lse, delta, tile, tile.begin + warp_row, begin + part,
                     window);
      AddWeightedRows<kDim>(scores, keys[stage], part, dq);
    }
    __syncthreads();  // before the next copy overwrites this stage
  }
  const float factor[2] = {args.scale, args.scale};
  StoreRows<kDim>(dq, factor, args.dq + head * args.head_dim, args.dq_stride,
                  static_cast<int>(args.head_dim), tile.begin + warp_row, tile.document_end);
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
  LoadTile<kDim>(views.q, begin, end, stage.queries);
  LoadTile<kDim>(views.dout, begin, end, stage.douts);
  for (int local = threadIdx.x; local < kTile; local += kThreads) {
    const int64_t at = (begin + local) * params.args.num_heads + head;
    const bool inside = begin + local < end;
    stage.lse[local] = inside ? params.args.lse[at] * kLog2E : kInfinity;
    stage.delta[local] = inside ? params.delta[at] : 0.0f;
  }
}

// From transposed scores and dp [16 keys, kPart queries] to p and ds, in their places.
template <int kDim>
__device__ void TransposedGradients(float (&scores)[kPartBlocks][4], float (&dp)[kPartBlocks][4],
                                    float scale, const QueryStage<kDim>& stage, int part,
                                    const Tile& tile, int first_key, int queries_begin,
                                    int window) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int block = 0; block < kPartBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int local = part + block * 8 + lane % 4 * 2 + i % 2;
      const int key = first_key + lane / 4 + i / 2 * 8;
      const float p = Sees(queries_begin + local, key, tile, window)
                          ? exp2f(scores[block][i] * scale - stage.lse[local])
                          : 0.0f;
      scores[block][i] = p;
      dp[block][i] = p * (dp[block][i] - stage.delta[local]);
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads)
    AttentionBackwardKeysKernel(const BackwardParams params) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int kElements = kTile * kDim;
  const AttentionBackwardArgs<bf16>& args = params.args;
  const Tile tile = TileOfSlot(args.document_starts, static_cast<int>(args.num_documents),
                               static_cast<int>(blockIdx.x));
  if (tile.count == 0) return;
  bf16* keys = reinterpret_cast<bf16*>(shared);
  bf16* values = keys + kElements;
  float* floats = reinterpret_cast<float*>(keys + 6 * kElements);
  const QueryStage<kDim> stages[2] = {
      {keys + 2 * kElements, keys + 3 * kElements, floats, floats + kTile},
      {keys + 4 * kElements, keys + 5 * kElements, floats + 2 * kTile, floats + 3 * kTile}};
  const int window = static_cast<int>(args.window), kv_head = static_cast<int>(blockIdx.y);
  const int group = static_cast<int>(args.num_heads / args.num_kv_heads);
  // Query tiles from the keys' own to the last that sees one of them.
  const int64_t last_seen =
      window == 0 ? tile.document_end - 1 : int64_t{tile.begin} + tile.count - 1 + window - 1;
  const int last =
      static_cast<int>(last_seen < tile.document_end - 1 ? last_seen : tile.document_end - 1);
  const int tiles = (last - tile.begin) / kTile + 1;
  const int steps = group * tiles;  // heads of the group, and their tiles inside

  const auto load = [&](int step, const QueryStage<kDim>& stage) {
    const int head = kv_head * group + step / tiles;
    LoadQueries(params, ViewsOf(params, head, kv_head), head, tile.begin + step % tiles * kTile,
                tile.document_end, stage);
  };
  const HeadViews own = ViewsOf(params, kv_head * group, kv_head);
  LoadTile<kDim>(own.k, tile.begin, tile.document_end, keys);
  LoadTile<kDim>(own.v, tile.begin, tile.document_end, values);
  load(0, stages[0]);
  CommitLoads();
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
  const float scale = args.scale * kLog2E;
  float dk[kDim / 8][4] = {}, dv[kDim / 8][4] = {};
  for (int step = 0; step < steps; ++step) {
    const QueryStage<kDim>& stage = stages[step % 2];
    if (step + 1 < steps) load(step + 1, stages[(step + 1) % 2]);
    CommitLoads();
    WaitForLoads<1>();
    __syncthreads();
#pragma unroll
    for (int part = 0; part < kTile; part += kPart) {
      float scores[kPartBlocks][4], dp[kPartBlocks][4];
      MultiplyRows<kDim>(keys, warp_row, stage.queries, part, scores);
      MultiplyRows<kDim>(values, warp_row, stage.douts, part, dp);
      TransposedGradients(scores, dp, scale, stage, part, tile, tile.begin + warp_row,
                          tile.begin + step % tiles * kTile, window);
      AddWeightedRows<kDim>(scores, stage.douts, part, dv);
      AddWeightedRows<kDim>(dp, stage.queries, part, dk);
    }
    __syncthreads();  // before the next copy overwrites this stage
  }
  const float whole[2] = {1.0f, 1.0f}, scaled[2] = {args.scale, args.scale};
  const int head_dim = static_cast<int>(args.head_dim), at = kv_head * head_dim;
  StoreRows<kDim>(dv, whole, args.dv + at, args.dv_stride, head_dim, tile.begin + warp_row,
                  tile.document_end);
  StoreRows<kDim>(dk, scaled, args.dk + at, args.dk_stride, head_dim, tile.begin + warp_row,
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
  const unsigned slots = static_cast<unsigned>(NumSlots(args.rows, args.num_documents));
  PENSTOCK_RETURN_IF_ERROR(LaunchOne(AttentionBackwardQueriesKernel<kDim>,
                                     dim3(slots, static_cast<unsigned>(args.num_heads)),
                                     kQueriesSharedBytes<kDim>, context.stream, params));
  return LaunchOne(AttentionBackwardKeysKernel<kDim>,
                   dim3(slots, static_cast<unsigned>(args.num_kv_heads)), kKeysSharedBytes<kDim>,
                   context.stream, params);
}

}  // namespace

absl::Status AttentionBackward(const cuda::Context& context,
                               const AttentionBackwardArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(CheckContract("AttentionBackward", args));
  PENSTOCK_RETURN_IF_ERROR(RequireSizes("AttentionBackward", {{"dq_stride", args.dq_stride},
                                                              {"dk_stride", args.dk_stride},
                                                              {"dv_stride", args.dv_stride}}));
  const int64_t wanted = CudaAttentionScratchBytes(args.rows, args.num_heads);
  PENSTOCK_RETURN_IF_ERROR(
      Require(wanted == 0 || (args.scratch != nullptr && args.scratch_bytes >= wanted),
              "AttentionBackward", "CudaAttentionScratchBytes() of scratch",
              {{"scratch_bytes", args.scratch_bytes}, {"wanted", wanted}}));
  if (args.rows == 0 || args.num_heads == 0) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(Require(
      args.dout != nullptr && args.dq != nullptr && args.dk != nullptr && args.dv != nullptr,
      "AttentionBackward", "arrays dout, dq, dk and dv"));
  const bool wide = cuda::AllowsWide({args.q, args.k, args.v, args.dout},
                                     {args.q_stride, args.k_stride, args.v_stride, args.head_dim});
  const BackwardParams params{args, static_cast<float*>(args.scratch), wide};
  return args.head_dim <= 64 ? Launch<64>(context, params) : Launch<128>(context, params);
}

}  // namespace penstock
