#include <algorithm>

#include "engine/base/status.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/swiglu.h"
#include "engine/kernels/vector_math.h"

namespace penstock {
namespace {

// Through exp(-|g|), which cannot overflow.
PENSTOCK_ALWAYS_INLINE float Sigmoid(float g) {
  const float e = Exp(g < 0.0f ? g : -g);
  return (g < 0.0f ? e : 1.0f) / (1.0f + e);
}

struct ForwardRows {
  PENSTOCK_ISA_BODY void Run(const SwigluForwardArgs<float>& args, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* __restrict gate = args.gate_up + row * 2 * args.intermediate;
      const float* __restrict up = gate + args.intermediate;
      float* __restrict y = args.y + row * args.intermediate;
      for (int64_t i = 0; i < args.intermediate; ++i) y[i] = gate[i] * Sigmoid(gate[i]) * up[i];
    }
  }
};

// Outputs may lie where inputs did. Through these copies the compiler sees that no element's
// output is another's input, and vectorises.
struct BackwardBlock {
  static constexpr int64_t kSize = 128;
  float gate[kSize], up[kSize], dy[kSize], product[kSize];
};

struct BackwardRows {
  PENSTOCK_ISA_BODY void Run(const SwigluBackwardArgs<float>& args, int64_t begin, int64_t end) {
    BackwardBlock block;
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t col = 0; col < args.intermediate; col += BackwardBlock::kSize) {
        const int64_t count = std::min(BackwardBlock::kSize, args.intermediate - col);
        const int64_t gate_at = row * 2 * args.intermediate + col;
        const int64_t up_at = gate_at + args.intermediate;
        const int64_t product_at = row * args.intermediate + col;
        std::copy_n(args.gate_up + gate_at, count, block.gate);
        std::copy_n(args.gate_up + up_at, count, block.up);
        std::copy_n(args.dy + product_at, count, block.dy);
        for (int64_t i = 0; i < count; ++i) {
          const float g = block.gate[i], u = block.up[i], dy = block.dy[i];
          const float sigmoid = Sigmoid(g);
          block.product[i] = g * sigmoid * u;
          block.gate[i] = dy * u * sigmoid * (1.0f + g * (1.0f - sigmoid));
          block.up[i] = dy * g * sigmoid;
        }
        std::copy_n(block.product, count, args.product + product_at);
        std::copy_n(block.gate, count, args.d_gate_up + gate_at);
        std::copy_n(block.up, count, args.d_gate_up + up_at);
      }
    }
  }
};

}  // namespace

absl::Status SwigluForward(const cpu::Context& context, const SwigluForwardArgs<float>& args) {
  PENSTOCK_RETURN_IF_ERROR(
      RequireSizes("SwigluForward", {{"rows", args.rows}, {"intermediate", args.intermediate}}));
  PENSTOCK_RETURN_IF_ERROR(Require(args.rows == 0 || (args.gate_up != nullptr && args.y != nullptr),
                                   "SwigluForward", "arrays gate_up and y"));
  ParallelBlocks(context, args.rows, RowsPerBlock(2 * args.intermediate),
                 [&](int64_t begin, int64_t end) { RunForIsa<ForwardRows>(args, begin, end); });
  return absl::OkStatus();
}

absl::Status SwigluBackward(const cpu::Context& context, const SwigluBackwardArgs<float>& args) {
  PENSTOCK_RETURN_IF_ERROR(
      RequireSizes("SwigluBackward", {{"rows", args.rows}, {"intermediate", args.intermediate}}));
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.rows == 0 || (args.gate_up != nullptr && args.dy != nullptr &&
                                 args.product != nullptr && args.d_gate_up != nullptr),
              "SwigluBackward", "arrays gate_up, dy, product and d_gate_up"));
  ParallelBlocks(context, args.rows, RowsPerBlock(2 * args.intermediate),
                 [&](int64_t begin, int64_t end) { RunForIsa<BackwardRows>(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace penstock
