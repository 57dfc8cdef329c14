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

PENSTOCK_ALWAYS_INLINE double Value(float x) { return x; }
PENSTOCK_ALWAYS_INLINE double Value(bf16 x) { return ToFloat(x); }

struct PartSum {
  template <typename Element>
  PENSTOCK_ISA_BODY void Run(const Element* x, int64_t count, double* sum) {
    *sum = LaneSum(
        count, [x](int64_t i) __attribute__((always_inline)) { return Value(x[i]) * Value(x[i]); });
  }
};

template <typename Element>
double Sum(const cpu::Context& context, const Element* x, int64_t count) {
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

}  // namespace

double SumOfSquares(const cpu::Context& context, const float* x, int64_t count) {
  return Sum(context, x, count);
}

double SumOfSquares(const cpu::Context& context, const bf16* x, int64_t count) {
  return Sum(context, x, count);
}

}  // namespace penstock
