// Attention, forward, on CUDA. A block has a tile of 64 queries of one head and walks the key
// tiles that they see, with the next tile's copy under way; a warp keeps 16 queries' running
// maximum, sum and output in registers (the online softmax of FlashAttention). Exponentials are
// to base 2, with log2(e) folded into the scale. Late tiles see the most keys and start first.
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_launch_cuda.h"
#include "engine/kernels/attention_tiles_cuda.cuh"

namespace penstock {
namespace {

using namespace cuda::attention;  // NOLINT(google-build-using-namespace): of this op only
using cuda::kWarp;

constexpr int kScoreBlocks = kTile / 8;

// Two stages of a key and a value tile, and the queries.
template <int kDim>
constexpr int kSharedBytes = 5 * kTile* kDim* static_cast<int>(sizeof(bf16));

// A warp's scores of one key tile: -Inf where the query does not see the key.
__device__ void MaskScores(float (&scores)[kScoreBlocks][4], const Tile& tile, int first_query,
                           int keys_begin, int window) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int block = 0; block < kScoreBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int query = first_query + lane / 4 + i / 2 * 8;
      const int key = keys_begin + block * 8 + lane % 4 * 2 + i % 2;
      const bool seen = key <= query && key >= FirstKey(tile.document_begin, query, window);
      if (!seen) scores[block][i] = -kInfinity;
    }
  }
}

// Largest or sum over the four lanes that share a row.
__device__ float RowMax(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}
__device__ float RowSum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// Of a thread's two rows; `sum` is this thread's part until the end.
template <int kDim>
struct Running {
  float max[2] = {-kInfinity, -kInfinity};
  float sum[2] = {0, 0};
  float out[kDim / 8][4] = {};
};

// Scores become probabilities relative to the new maximum; what was summed before is rescaled.
template <int kDim>
__device__ void UpdateSoftmax(float (&scores)[kScoreBlocks][4], float scale,
                              Running<kDim>& running) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float max = running.max[half];
#pragma unroll
    for (int block = 0; block < kScoreBlocks; ++block) {
      max = fmaxf(max, fmaxf(scores[block][2 * half], scores[block][2 * half + 1]) * scale);
    }
    max = RowMax(max);
    const float base = max == -kInfinity ? 0.0f : max;  // a row that has seen no key yet
    const float shrink = exp2f(running.max[half] - base);
    running.max[half] = max;
    running.sum[half] *= shrink;
#pragma unroll
    for (int block = 0; block < kDim / 8; ++block) {
      running.out[block][2 * half] *= shrink;
      running.out[block][2 * half + 1] *= shrink;
    }
#pragma unroll
    for (int block = 0; block < kScoreBlocks; ++block) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        scores[block][i] = exp2f(scores[block][i] * scale - base);
        running.sum[half] += scores[block][i];
      }
    }
  }
}

struct ForwardParams {
  AttentionForwardArgs<bf16> args;
  bool wide;
};

template <int kDim>
__device__ void Finish(const AttentionForwardArgs<bf16>& args, const Tile& tile, int head,
                       int first_query, Running<kDim>& running) {
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = RowSum(running.sum[half]);
    factor[half] = 1.0f / sum;
    const int row = first_query + threadIdx.x % kWarp / 4 + 8 * half;
    if (threadIdx.x % 4 == 0 && row < tile.document_end) {
      args.lse[row * args.num_heads + head] = (running.max[half] + log2f(sum)) * kLn2;
    }
  }
  StoreRows<kDim>(running.out, factor, args.out + head * args.head_dim,
                  args.num_heads * args.head_dim, static_cast<int>(args.head_dim), first_query,
                  tile.document_end);
}

template <int kDim>
__global__ void __launch_bounds__(kThreads) AttentionForwardKernel(const ForwardParams params) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int kElements = kTile * kDim;
  const AttentionForwardArgs<bf16>& args = params.args;
  const int slot = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const Tile tile = TileOfSlot(args.document_starts, static_cast<int>(args.num_documents), slot);
  if (tile.count == 0) return;
  bf16* queries = reinterpret_cast<bf16*>(shared);
  bf16* keys[2] = {queries + kElements, queries + 2 * kElements};
  bf16* values[2] = {queries + 3 * kElements, queries + 4 * kElements};
  const int head_dim = static_cast<int>(args.head_dim), window = static_cast<int>(args.window);
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / static_cast<int>(args.num_heads / args.num_kv_heads);
  const HeadView q{args.q + head * head_dim, args.q_stride, head_dim, params.wide};
  const HeadView k{args.k + kv_head * head_dim, args.k_stride, head_dim, params.wide};
  const HeadView v{args.v + kv_head * head_dim, args.v_stride, head_dim, params.wide};

  int begin = TileBegin(tile.document_begin, FirstKey(tile.document_begin, tile.begin, window));
  LoadTile<kDim>(q, tile.begin, tile.document_end, queries);
  LoadTile<kDim>(k, begin, tile.document_end, keys[0]);
  LoadTile<kDim>(v, begin, tile.document_end, values[0]);
  CommitLoads();
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
  const int first_query = tile.begin + warp_row;
  const float scale = args.scale * kLog2E;
  Running<kDim> running;
  for (int stage = 0; begin <= tile.begin; begin += kTile, stage ^= 1) {
    if (begin < tile.begin) {
      LoadTile<kDim>(k, begin + kTile, tile.document_end, keys[stage ^ 1]);
      LoadTile<kDim>(v, begin + kTile, tile.document_end, values[stage ^ 1]);
    }
    CommitLoads();
    WaitForLoads<1>();
    __syncthreads();
    float scores[kScoreBlocks][4];
    MultiplyRows<kDim>(queries, warp_row, keys[stage], 0, scores);
    if (begin == tile.begin || window > 0) MaskScores(scores, tile, first_query, begin, window);
    UpdateSoftmax(scores, scale, running);
    AddWeightedRows<kDim>(scores, values[stage], 0, running.out);
    __syncthreads();  // before the next copy overwrites this stage
  }
  Finish(args, tile, head, first_query, running);
}

template <int kDim>
absl::Status Launch(const cuda::Context& context, const ForwardParams& params) {
  const AttentionForwardArgs<bf16>& args = params.args;
  PENSTOCK_RETURN_IF_ERROR(cuda::CudaStatus(
      cudaFuncSetAttribute(AttentionForwardKernel<kDim>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<kDim>),
      "AttentionForward"));
  const dim3 grid(static_cast<unsigned>(NumSlots(args.rows, args.num_documents)),
                  static_cast<unsigned>(args.num_heads));
  AttentionForwardKernel<kDim><<<grid, kThreads, kSharedBytes<kDim>, context.stream>>>(params);
  return cuda::LaunchStatus("AttentionForward");
}

}  // namespace

absl::Status AttentionForward(const cuda::Context& context,
                              const AttentionForwardArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(CheckContract("AttentionForward", args));
  if (args.rows == 0 || args.num_heads == 0) return absl::OkStatus();
  const ForwardParams params{
      args, cuda::AllowsWide({args.q, args.k, args.v},
                             {args.q_stride, args.k_stride, args.v_stride, args.head_dim})};
  return args.head_dim <= 64 ? Launch<64>(context, params) : Launch<128>(context, params);
}

}  // namespace penstock
