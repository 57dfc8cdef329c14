#include <algorithm>

#include "engine/base/status.h"
#include "engine/kernels/isa_dispatch.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/round_gradients.h"
#include "engine/kernels/round_ranges.h"

namespace penstock {
namespace {

constexpr int64_t kBlock = 64 * 1024;  // elements

struct RoundRange {
  PENSTOCK_ISA_BODY void Run(const float* __restrict in, bf16* __restrict out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[i] = ToBf16(in[i]);
  }
};

}  // namespace

absl::Status RoundToBf16(const cpu::Context& context, const float* in, bf16* out, int64_t count) {
  PENSTOCK_RETURN_IF_ERROR(CheckRoundToBf16(in, out, count));
  const auto round = [&](int64_t first, int64_t last) {
    ParallelBlocks(context, last - first, kBlock, [&](int64_t begin, int64_t end) {
      RunForIsa<RoundRange>(in + first + begin, out + first + begin, end - begin);
    });
    return absl::OkStatus();
  };
  if (static_cast<const void*>(in) != out) return round(0, count);
  // In place the first element alone shares its bytes with its result.
  if (count > 0) out[0] = ToBf16(in[0]);
  return ForDoublingRanges(1, count, round);
}

}  // namespace penstock
