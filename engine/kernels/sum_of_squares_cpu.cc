#include <algorithm>
#include <array>

#include "engine/base/thread_pool.h"
#include "engine/base/units.h"
#include "engine/kernels/sum_of_squares.h"
#include "engine/kernels/vector_math.h"

namespace penstock {
namespace {

// Parts are cut by count alone; their sums wait here, so the array has a fixed size.
constexpr int64_t kMaxParts = 512;
constexpr int64_t kLeastPart = 16 * 1024;  // elements

struct PartSum {
  PENSTOCK_ISA_BODY void Run(const float* x, int64_t count, double* sum) {
    *sum = LaneSum(
        count, [x](int64_t i) __attribute__((always_inline)) { return double{x[i]} * x[i]; });
  }
};

}  // namespace

double SumOfSquares(const cpu::Context& context, const float* x, int64_t count) {
  const int64_t part = std::max(kLeastPart, RoundUp(CeilDiv(count, kMaxParts), kLanes));
  const int64_t parts = CeilDiv(count, part);
  std::array<double, kMaxParts> sums;
  context.pool->ParallelFor(parts, [&](int64_t task, int /*worker*/) {
    const int64_t begin = task * part;
    RunForIsa<PartSum>(x + begin, std::min(part, count - begin), &sums[task]);
  });
  double total = 0;
  for (int64_t i = 0; i < parts; ++i) total += sums[i];
  return total;
}

}  // namespace penstock
