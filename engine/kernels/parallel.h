// Cuts a range into blocks by its length alone and runs them on the pool.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "engine/base/thread_pool.h"
#include "engine/base/units.h"
#include "engine/kernels/context.h"

namespace penstock {

// body(begin, end) for each block of `block` items of [0, count).
inline void ParallelBlocks(const cpu::Context& context, int64_t count, int64_t block,
                           absl::FunctionRef<void(int64_t begin, int64_t end)> body) {
  context.pool->ParallelFor(CeilDiv(count, block), [&](int64_t task, int /*worker*/) {
    const int64_t begin = task * block;
    body(begin, std::min(begin + block, count));
  });
}

// Rows in a block so that it holds about 16 Ki elements: enough to pay for handing it out.
inline int64_t RowsPerBlock(int64_t cols) {
  constexpr int64_t kElements = 16 * 1024;
  return std::max<int64_t>(1, kElements / std::max<int64_t>(1, cols));
}

// Columns of a block for sums over rows: two cache lines wide, so blocks share none.
inline constexpr int64_t kColumnBlock = 32;

}  // namespace penstock
