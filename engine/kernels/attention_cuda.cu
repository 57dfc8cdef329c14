// Attention, forward, on CUDA. A block has a tile of 128 queries of one head and walks the tiles of
// 64 keys that they see, with the next tile's copy under way; a warp keeps 32 queries' running
// maximum, sum and output in registers (the online softmax of FlashAttention). With heads of more
// than 128 elements both tiles have half the rows. Exponentials are to base 2, with log2(e) folded
// into the scale. Late tiles see the most keys and start first.
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

template <int kDim>
struct Tuning {
  static constexpr int kRowTiles = kDim <= 128 ? 2 : 1;  // of 16 queries, a warp
  static constexpr int kQueries = kWarps * 16 * kRowTiles;
  static constexpr int kKeys = kDim <= 128 ? 64 : 32;
  // The queries, and two stages of a key and a value tile.
  static constexpr int kSharedBytes =
      (kQueries + 4 * kKeys) * kDim * static_cast<int>(sizeof(bf16));
  static_assert(kSharedBytes <= kMostSharedBytes);
};

// Largest or sum over the four lanes that share a row.
__device__ float RowMax(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}
__device__ float RowSum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// Of a thread's two rows of 16; `sum` is this thread's part until the end.
struct Running {
  float max[2] = {-kInfinity, -kInfinity};
  float sum[2] = {0, 0};
};

// Scores become probabilities relative to the new maximum; what was summed before is rescaled.
template <int kScoreBlocks, int kOutBlocks>
__device__ void UpdateSoftmax(float (&scores)[kScoreBlocks][4], float scale, Running& running,
                              float (&out)[kOutBlocks][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float max = running.max[half];
#pragma unroll
    for (int block = 0; block < kScoreBlocks; ++block) {
      max = fmaxf(max, fmaxf(scores[block][2 * half], scores[block][2 * half + 1]) * scale);
    }
    max = RowMax(max);
    const float base = max == -kInfinity ? 0.0f : max;  // a row that has seen no key yet
    const float shrink = Exp2(running.max[half] - base);
    running.max[half] = max;
    running.sum[half] *= shrink;
#pragma unroll
    for (int block = 0; block < kOutBlocks; ++block) {
      out[block][2 * half] *= shrink;
      out[block][2 * half + 1] *= shrink;
    }
#pragma unroll
    for (int block = 0; block < kScoreBlocks; ++block) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        scores[block][i] = Exp2(scores[block][i] * scale - base);
        running.sum[half] += scores[block][i];
      }
    }
  }
}

struct ForwardParams {
  AttentionForwardArgs<bf16> args;
  bool wide;
};

// Of 16 rows from first_query on.
template <int kDim>
__device__ void Finish(const AttentionForwardArgs<bf16>& args, int document_end, int head,
                       int first_query, const Running& running, const float (&out)[kDim / 8][4]) {
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = RowSum(running.sum[half]);
    factor[half] = 1.0f / sum;
    const int row = first_query + static_cast<int>(threadIdx.x) % kWarp / 4 + 8 * half;
    if (threadIdx.x % 4 == 0 && row < document_end) {
      args.lse[row * args.num_heads + head] = (running.max[half] + log2f(sum)) * kLn2;
    }
  }
  StoreRows<kDim>(out, factor, args.out + head * args.head_dim, args.num_heads * args.head_dim,
                  static_cast<int>(args.head_dim), first_query, document_end);
}

template <int kDim>
__global__ void __launch_bounds__(kThreads) AttentionForwardKernel(const ForwardParams params) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int kRowTiles = Tuning<kDim>::kRowTiles, kQueries = Tuning<kDim>::kQueries;
  constexpr int kKeys = Tuning<kDim>::kKeys, kElements = kKeys * kDim;
  const AttentionForwardArgs<bf16>& args = params.args;
  const int slot = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const Tile tile =
      TileOfSlot<kQueries>(args.document_starts, static_cast<int>(args.num_documents), slot);
  if (tile.count == 0) return;
  bf16* queries = reinterpret_cast<bf16*>(shared);
  bf16* keys = queries + kQueries * kDim;  // two stages of kElements
  bf16* values = keys + 2 * kElements;     // likewise
  const int head_dim = static_cast<int>(args.head_dim), window = static_cast<int>(args.window);
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / static_cast<int>(args.num_heads / args.num_kv_heads);
  const HeadView q{args.q + head * head_dim, args.q_stride, head_dim, params.wide};
  const HeadView k{args.k + kv_head * head_dim, args.k_stride, head_dim, params.wide};
  const HeadView v{args.v + kv_head * head_dim, args.v_stride, head_dim, params.wide};

  const int end = tile.begin + tile.count;  // of the keys too
  int begin =
      TileBegin<kKeys>(tile.document_begin, FirstKey(tile.document_begin, tile.begin, window));
  LoadTile<kDim, kQueries>(q, tile.begin, tile.document_end, queries);
  LoadTile<kDim, kKeys>(k, begin, tile.document_end, keys);
  LoadTile<kDim, kKeys>(v, begin, tile.document_end, values);
  CommitLoads();
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16 * kRowTiles;
  const int first_query = tile.begin + warp_row;
  const float scale = args.scale * kLog2E;
  Running running[kRowTiles];
  Sums<kRowTiles, kDim / 8> out = {};
  for (int stage = 0; begin < end; begin += kKeys, stage ^= 1) {
    if (begin + kKeys < end) {
      LoadTile<kDim, kKeys>(k, begin + kKeys, tile.document_end, keys + (stage ^ 1) * kElements);
      LoadTile<kDim, kKeys>(v, begin + kKeys, tile.document_end, values + (stage ^ 1) * kElements);
    }
    CommitLoads();
    WaitForLoads<1>();
    __syncthreads();
    if (begin < first_query + 16 * kRowTiles) {  // else all of these keys come after the queries
      Sums<kRowTiles, kKeys / 8> scores;
      MultiplyRows<kDim, kRowTiles, kKeys / 8>(queries, warp_row, keys + stage * kElements, 0,
                                               scores);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        if (begin + kKeys > first_query || window > 0) {
          MaskScores<ScoreRows::kQueries>(scores[i], tile.document_begin, first_query + 16 * i,
                                          begin, window);
        }
        UpdateSoftmax(scores[i], scale, running[i], out[i]);
      }
      AddWeightedRows<kDim, kDim, kRowTiles, kKeys / 8>(scores, values + stage * kElements, 0, 0,
                                                        out);
    }
    __syncthreads();  // before the next copy overwrites this stage
  }
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
    Finish<kDim>(args, tile.document_end, head, first_query + 16 * i, running[i], out[i]);
  }
}

template <int kDim>
absl::Status Launch(const cuda::Context& context, const ForwardParams& params) {
  const AttentionForwardArgs<bf16>& args = params.args;
  constexpr int kSharedBytes = Tuning<kDim>::kSharedBytes;
  PENSTOCK_RETURN_IF_ERROR(cuda::CudaStatus(
      cudaFuncSetAttribute(AttentionForwardKernel<kDim>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
      "AttentionForward"));
  const int64_t slots = NumSlots<Tuning<kDim>::kQueries>(args.rows, args.num_documents);
  const dim3 grid(static_cast<unsigned>(slots), static_cast<unsigned>(args.num_heads));
  AttentionForwardKernel<kDim><<<grid, kThreads, kSharedBytes, context.stream>>>(params);
  return cuda::LaunchStatus("AttentionForward");
}

}  // namespace

absl::Status cuda::attention::ForwardByKernel(const cuda::Context& context,
                                              const AttentionForwardArgs<bf16>& args) {
  const ForwardParams params{
      args, cuda::AllowsWide({args.q, args.k, args.v},
                             {args.q_stride, args.k_stride, args.v_stride, args.head_dim})};
  if (args.head_dim <= 64) return Launch<64>(context, params);
  if (args.head_dim <= 128) return Launch<128>(context, params);
  static_assert(kLargestCudaHeadDim == 256);
  return Launch<256>(context, params);
}

absl::Status AttentionForward(const cuda::Context& context,
                              const AttentionForwardArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(CheckContract("AttentionForward", args));
  if (args.rows == 0 || args.num_heads == 0) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const bool queued, ForwardByCudnn(context, args));
  return queued ? absl::OkStatus() : ForwardByKernel(context, args);
}

}  // namespace penstock
