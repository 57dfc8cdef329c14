// What the forward and backward attention kernels share: tiles of rows by kDim columns in shared
// memory, and warp-wide products of them on tensor cores (mma.sync m16n8k16, bf16).
//
// Heads of up to 256 elements are padded to a kDim of 64, 128 or 256. A block has 4 warps, each
// with 16 or 32 rows of the block's own tile; with 32, what a warp loads of the other tile serves
// twice, and loads from shared memory are what limits it. kDim 256 leaves registers for 16, and
// its tiles have fewer rows, so that what a block keeps fits every card. A tile is
// stored in chunks of 8 elements, chunk c of row r at place c ^ (r % 8), so the 8 rows that one
// ldmatrix reads lie in different banks. Rows past a document's end and columns past head_dim are
// zeros: nothing of a neighbour is ever multiplied.
//
// Documents are cut as attention_tiles.h says: by slots of one tile, counted from the document's
// start, so a document's results do not depend on where it lies.
#pragma once

#include <cstdint>
#include <limits>

#include "engine/kernels/vector_cuda.cuh"

namespace penstock::cuda::attention {

inline constexpr int kThreads = 128;
inline constexpr int kWarps = kThreads / kWarp;
inline constexpr int kChunk = 8;  // elements, 16 bytes
// Shared memory of a block, at most: what cards of compute capability 8.6 and 8.9 have; others have
// more.
inline constexpr int kMostSharedBytes = 99 << 10;
inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2 = 0.693147180559945309f;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Tile {
  int document_begin, document_end;  // rows
  int begin, count;                  // rows; count is 0 for an empty slot
};

template <int kTile>
int64_t NumSlots(int64_t rows, int64_t num_documents) {
  return rows / kTile + num_documents;
}

template <int kTile>
__device__ inline Tile TileOfSlot(const int32_t* starts, int num_documents, int slot) {
  int low = 0;  // the last document whose first slot is not beyond `slot`
  int high = num_documents;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (starts[middle] / kTile + middle <= slot) {
      low = middle;
    } else {
      high = middle;
    }
  }
  Tile tile;
  tile.document_begin = starts[low];
  tile.document_end = starts[low + 1];
  tile.begin = tile.document_begin + (slot - (starts[low] / kTile + low)) * kTile;
  tile.count = min(max(tile.document_end - tile.begin, 0), kTile);
  return tile;
}

// The first key that `query` sees.
__device__ inline int FirstKey(int document_begin, int query, int window) {
  return window == 0 ? document_begin : max(document_begin, query - window + 1);
}

// Start of the tile of the document that holds `row`.
template <int kTile>
__device__ inline int TileBegin(int document_begin, int row) {
  return document_begin + (row - document_begin) / kTile * kTile;
}

// One head's rows in an activation.
struct HeadView {
  const bf16* data;  // of row 0
  int64_t stride;
  int head_dim;
  bool wide;  // 16-byte loads are allowed
};

template <int kDim>
__device__ inline bf16* TileElement(bf16* tile, int row, int chunk) {
  return tile + row * kDim + ((chunk ^ (row % 8)) * kChunk);
}

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Starts copying rows [begin, min(begin + kRows, end)) into `tile`; the rest becomes zero. All
// threads; CommitLoads, WaitForLoads and a barrier make it visible.
template <int kDim, int kRows>
__device__ inline void LoadTile(const HeadView& view, int begin, int end, bf16* tile) {
  constexpr int kChunks = kDim / kChunk;
  for (int item = threadIdx.x; item < kRows * kChunks; item += kThreads) {
    const int row = item / kChunks, chunk = item % kChunks;
    bf16* to = TileElement<kDim>(tile, row, chunk);
    const bool inside = begin + row < end;
    const int64_t at = inside ? (begin + row) * view.stride + chunk * kChunk : 0;
    if (view.wide) {
      const int bytes = inside && chunk * kChunk < view.head_dim ? 16 : 0;
      const bf16* from = view.data + (bytes == 0 ? 0 : at);
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(SharedAddress(to)),
                   "l"(from), "r"(bytes));
    } else {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const bool present = inside && chunk * kChunk + i < view.head_dim;
        to[i] = present ? view.data[at + i] : bf16{0};
      }
    }
  }
}

__device__ inline void CommitLoads() { asm volatile("cp.async.commit_group;\n"); }

// Until at most kPending committed groups of this thread are under way.
template <int kPending>
__device__ inline void WaitForLoads() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending));
}

struct Fragment {
  uint32_t word[4];
};

__device__ inline Fragment LoadMatrices(const bf16* from) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(f.word[0]), "=r"(f.word[1]), "=r"(f.word[2]), "=r"(f.word[3])
               : "r"(SharedAddress(from))
               : "memory");
  return f;
}

__device__ inline Fragment LoadMatricesTransposed(const bf16* from) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(f.word[0]), "=r"(f.word[1]), "=r"(f.word[2]), "=r"(f.word[3])
               : "r"(SharedAddress(from))
               : "memory");
  return f;
}

// Rows [row, row + 16), columns [16 step, 16 step + 16) of a tile, as the first operand.
template <int kDim>
__device__ inline Fragment RowsOf(bf16* tile, int row, int step) {
  const int lane = threadIdx.x % kWarp;
  return LoadMatrices(TileElement<kDim>(tile, row + lane % 16, step * 2 + lane / 16));
}

// The same square as second operand, summed over the tile's columns: words 0, 1 give the products
// with rows [row, row + 8), words 2, 3 those with the next 8.
template <int kDim>
__device__ inline Fragment RowsAsColumnsOf(bf16* tile, int row, int step) {
  const int lane = threadIdx.x % kWarp;
  return LoadMatrices(
      TileElement<kDim>(tile, row + lane % 8 + lane / 16 * 8, step * 2 + lane / 8 % 2));
}

// The square of rows [row, row + 16) and columns [16 step, 16 step + 16) as second operand, summed
// over the tile's rows: words 0, 1 give columns [16 step, 16 step + 8), words 2, 3 the next 8.
template <int kDim>
__device__ inline Fragment ColumnsOf(bf16* tile, int row, int step) {
  const int lane = threadIdx.x % kWarp;
  return LoadMatricesTransposed(TileElement<kDim>(tile, row + lane % 16, step * 2 + lane / 16));
}

// sum[16,8] += a[16,16] * b[16,8]. Element i of `sum` is at row lane / 4 + 8 (i / 2) and column
// 2 (lane % 4) + i % 2.
__device__ inline void MultiplyAdd(const Fragment& a, uint32_t b0, uint32_t b1, float (&sum)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b0), "r"(b1));
}

// Two neighbouring [16,8] results as one first operand [16,16].
__device__ inline Fragment AsOperand(const float (&left)[4], const float (&right)[4]) {
  return {{Pack(left[0], left[1]), Pack(left[2], left[3]), Pack(right[0], right[1]),
           Pack(right[2], right[3])}};
}

// A warp's results: kRowTiles times 16 rows, kBlocks times 8 columns.
template <int kRowTiles, int kBlocks>
using Sums = float[kRowTiles][kBlocks][4];

// result = rows [row, row + 16 kRowTiles) of `left`, times rows [first, first + 8 kBlocks) of
// `right`, transposed.
template <int kDim, int kRowTiles, int kBlocks>
__device__ inline void MultiplyRows(bf16* left, int row, bf16* right, int first,
                                    Sums<kRowTiles, kBlocks>& result) {
#pragma unroll
  for (auto& row_tile : result) {
#pragma unroll
    for (auto& block : row_tile) {
#pragma unroll
      for (float& value : block) value = 0;
    }
  }
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    Fragment a[kRowTiles];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) a[i] = RowsOf<kDim>(left, row + 16 * i, step);
#pragma unroll
    for (int block = 0; block < kBlocks; block += 2) {
      const Fragment b = RowsAsColumnsOf<kDim>(right, first + block * 8, step);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        MultiplyAdd(a[i], b.word[0], b.word[1], result[i][block]);
        MultiplyAdd(a[i], b.word[2], b.word[3], result[i][block + 1]);
      }
    }
  }
}

// sum += weights (rounded to bf16) times rows [first, first + 8 kBlocks) and columns [first_column,
// first_column + kColumns) of `tile`. REQUIRES: first_column is a multiple of 16.
template <int kDim, int kColumns, int kRowTiles, int kBlocks>
__device__ inline void AddWeightedRows(const Sums<kRowTiles, kBlocks>& weights, bf16* tile,
                                       int first, int first_column,
                                       Sums<kRowTiles, kColumns / 8>& sum) {
#pragma unroll
  for (int block = 0; block < kBlocks; block += 2) {
    Fragment a[kRowTiles];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) a[i] = AsOperand(weights[i][block], weights[i][block + 1]);
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step) {
      const Fragment b = ColumnsOf<kDim>(tile, first + block * 8, first_column / 16 + step);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        MultiplyAdd(a[i], b.word[0], b.word[1], sum[i][2 * step]);
        MultiplyAdd(a[i], b.word[2], b.word[3], sum[i][2 * step + 1]);
      }
    }
  }
}

// What the rows of a warp's scores are; the columns are the other.
enum class ScoreRows { kQueries, kKeys };

// Scores become -Inf where the query does not see the key.
template <ScoreRows kRows, int kBlocks>
__device__ inline void MaskScores(float (&scores)[kBlocks][4], int document_begin, int first_query,
                                  int first_key, int window) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, col = block * 8 + lane % 4 * 2 + i % 2;
      const int query = first_query + (kRows == ScoreRows::kQueries ? row : col);
      const int key = first_key + (kRows == ScoreRows::kQueries ? col : row);
      const bool seen = key <= query && key >= FirstKey(document_begin, query, window);
      if (!seen) scores[block][i] = -kInfinity;
    }
  }
}

// 2^x within 2^-22; 0 for -Inf.
__device__ inline float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
}

// Stores a warp's [16, kColumns] result, times `factor` of each of a thread's two rows, to rows
// [begin, min(begin + 16, end)) of a head, of which `head_dim` elements are there from `head` on.
template <int kColumns>
__device__ inline void StoreRows(const float (&values)[kColumns / 8][4], const float (&factor)[2],
                                 bf16* head, int64_t stride, int head_dim, int begin, int end) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = begin + lane / 4 + 8 * half;
    if (row >= end) continue;
    bf16* to = head + row * stride;
#pragma unroll
    for (int block = 0; block < kColumns / 8; ++block) {
      const int col = block * 8 + lane % 4 * 2;
      if (col < head_dim) to[col] = DeviceBf16(values[block][2 * half] * factor[half]);
      if (col + 1 < head_dim) to[col + 1] = DeviceBf16(values[block][2 * half + 1] * factor[half]);
    }
  }
}

}  // namespace penstock::cuda::attention
