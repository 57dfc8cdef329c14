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

struct BackwardRows {
  PENSTOCK_ISA_BODY void Run(const SwigluBackwardArgs<float>& args, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* gate = args.gate_up + row * 2 * args.intermediate;
      const float* up = gate + args.intermediate;
      const float* dy = args.dy + row * args.intermediate;
      float* d_gate = args.d_gate_up + row * 2 * args.intermediate;
      float* d_up = d_gate + args.intermediate;
      for (int64_t i = 0; i < args.intermediate; ++i) {
        const float g = gate[i];
        const float u = up[i];
        const float sigmoid = Sigmoid(g);
        d_gate[i] = dy[i] * u * sigmoid * (1.0f + g * (1.0f - sigmoid));
        d_up[i] = dy[i] * g * sigmoid;
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
      Require(args.rows == 0 ||
                  (args.gate_up != nullptr && args.dy != nullptr && args.d_gate_up != nullptr),
              "SwigluBackward", "arrays gate_up, dy and d_gate_up"));
  ParallelBlocks(context, args.rows, RowsPerBlock(2 * args.intermediate),
                 [&](int64_t begin, int64_t end) { RunForIsa<BackwardRows>(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace penstock
