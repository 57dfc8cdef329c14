// A block takes a tile of rows, and has a thread for each row and for each digit. At 16,384 rows
// latency is all there is to the time; hence tiles are small, and each block that moves rows adds
// up the counts of all tiles by itself instead of waiting for a kernel that does it once.
#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/row_order.h"
#include "engine/kernels/vector_cuda.cuh"

namespace penstock::cuda {
namespace {

using Tuning = RowOrderTuning;

constexpr int kThreads = Tuning::kBins;  // thread d also keeps the books of digit d
constexpr int kWarps = kThreads / kWarp;
static_assert(Tuning::kTileRows == kThreads);

struct Pass {
  const int32_t* keys;
  const int32_t* values;  // null: a row's own number
  int32_t* keys_out;
  int32_t* values_out;
  uint32_t* counts;  // [tiles, kBins]
  int64_t rows, tiles;
  int shift;
};

__device__ int DigitOf(const Pass& pass, int32_t key) {
  return (static_cast<uint32_t>(key) >> pass.shift) % Tuning::kBins;
}

// counts[tile, d] = rows of the tile with digit d.
__global__ void CountKernel(const Pass pass) {
  __shared__ uint32_t bins[Tuning::kBins];
  bins[threadIdx.x] = 0;
  __syncthreads();
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row < pass.rows) atomicAdd(&bins[DigitOf(pass, pass.keys[row])], 1u);
  __syncthreads();
  pass.counts[int64_t{blockIdx.x} * kThreads + threadIdx.x] = bins[threadIdx.x];
}

// The sum of the values of the threads before this one.
__device__ uint32_t SumBefore(uint32_t value, uint32_t (&sums)[kThreads]) {
  sums[threadIdx.x] = value;
  for (unsigned reach = 1; reach < kThreads; reach *= 2) {
    __syncthreads();
    const uint32_t left = threadIdx.x >= reach ? sums[threadIdx.x - reach] : 0;
    __syncthreads();
    sums[threadIdx.x] += left;
  }
  return sums[threadIdx.x] - value;
}

__global__ void MoveKernel(const Pass pass) {
  __shared__ uint32_t shared[kThreads];
  // Rows of each digit in each warp, then where the first of them goes.
  __shared__ uint32_t places[kWarps][Tuning::kBins];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool exists = row < pass.rows;
  const int32_t key = exists ? pass.keys[row] : 0;
  uint32_t all = 0, before_tile = 0;  // rows with this thread's digit
#pragma unroll 8
  for (int64_t tile = 0; tile < pass.tiles; ++tile) {
    const uint32_t count = pass.counts[tile * kThreads + threadIdx.x];
    all += count;
    if (tile < blockIdx.x) before_tile += count;
  }
  for (int i = 0; i < kWarps; ++i) places[i][threadIdx.x] = 0;
  uint32_t next = SumBefore(all, shared) + before_tile;
  __syncthreads();
  const int digit = exists ? DigitOf(pass, key) : Tuning::kBins;
  const unsigned peers = __match_any_sync(0xffffffffu, digit);
  const int before = __popc(peers & ((1u << lane) - 1u));
  if (exists && before == 0) places[warp][digit] = __popc(peers);
  __syncthreads();
  for (int i = 0; i < kWarps; ++i) {
    const uint32_t here = places[i][threadIdx.x];
    places[i][threadIdx.x] = next;
    next += here;
  }
  __syncthreads();
  if (!exists) return;
  const uint32_t place = places[warp][digit] + before;
  pass.keys_out[place] = key;
  pass.values_out[place] = pass.values == nullptr ? static_cast<int32_t>(row) : pass.values[row];
}

}  // namespace

absl::StatusOr<RowOrder> OrderRows(const Context& context, std::string_view op, const int32_t* keys,
                                   int64_t rows, int64_t limit, std::byte* scratch) {
  const int64_t array = RoundUp(rows * int64_t{sizeof(int32_t)}, Tuning::kAlignment);
  const auto array_at = [&](int64_t index) {
    return reinterpret_cast<int32_t*>(scratch + index * array);
  };
  Pass pass = {.keys = keys,
               .values = nullptr,
               .keys_out = array_at(0),
               .values_out = array_at(1),
               .counts = reinterpret_cast<uint32_t*>(scratch + 4 * array),
               .rows = rows,
               .tiles = CeilDiv(rows, Tuning::kTileRows),
               .shift = 0};
  const unsigned grid = static_cast<unsigned>(pass.tiles);
  int64_t side = 0;
  do {
    CountKernel<<<grid, kThreads, 0, context.stream>>>(pass);
    PENSTOCK_RETURN_IF_ERROR(LaunchStatus(op));
    MoveKernel<<<grid, kThreads, 0, context.stream>>>(pass);
    PENSTOCK_RETURN_IF_ERROR(LaunchStatus(op));
    side = 2 - side;
    pass.keys = pass.keys_out;
    pass.values = pass.values_out;
    pass.keys_out = array_at(side);
    pass.values_out = array_at(side + 1);
    pass.shift += Tuning::kDigitBits;
  } while (((limit - 1) >> pass.shift) > 0);
  return RowOrder{pass.keys, pass.values};
}

}  // namespace penstock::cuda
