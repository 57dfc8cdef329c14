// The output of each product is cut into panels of 256 x 256: large enough for OpenBLAS to run
// near its peak (packing costs about a tenth), small enough that a layer of a small model has
// work for every thread. A panel is one sgemm over the whole inner dimension.
#include <algorithm>
#include <array>

#include "engine/base/status.h"
#include "engine/kernels/blas.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/parallel.h"

namespace penstock {
namespace {

constexpr int64_t kPanel = 256;

struct Panel {
  int64_t row, rows, col, cols;
};

void ForEachPanel(const cpu::Context& context, int64_t rows, int64_t cols,
                  absl::FunctionRef<void(const Panel&)> body) {
  const int64_t across = CeilDiv(cols, kPanel);
  context.pool->ParallelFor(CeilDiv(rows, kPanel) * across, [&](int64_t task, int /*worker*/) {
    const int64_t row = task / across * kPanel;
    const int64_t col = task % across * kPanel;
    body({row, std::min(kPanel, rows - row), col, std::min(kPanel, cols - col)});
  });
}

float Beta(WriteMode mode) { return mode == WriteMode::kAdd ? 1.0f : 0.0f; }

// Puts bias + residual where the product will be added. Returns the beta for that.
float PrepareOutput(const LinearForwardArgs<float>& args, const Panel& panel) {
  if (args.bias == nullptr && args.residual == nullptr) return 0.0f;
  if (args.bias == nullptr && args.residual == args.y) return 1.0f;
  for (int64_t row = panel.row; row < panel.row + panel.rows; ++row) {
    const int64_t offset = row * args.out + panel.col;
    float* y = args.y + offset;
    if (args.bias == nullptr) {
      std::copy_n(args.residual + offset, panel.cols, y);
    } else if (args.residual == nullptr) {
      std::copy_n(args.bias + panel.col, panel.cols, y);
    } else {
      for (int64_t col = 0; col < panel.cols; ++col) {
        y[col] = args.residual[offset + col] + args.bias[panel.col + col];
      }
    }
  }
  return 1.0f;
}

void BiasGradient(const cpu::Context& context, const LinearBackwardWeightArgs<float>& args) {
  ParallelBlocks(context, args.out, kColumnBlock, [&](int64_t begin, int64_t end) {
    std::array<double, kColumnBlock> sums{};
    for (int64_t row = 0; row < args.rows; ++row) {
      const float* dy = args.dy + row * args.out;
      for (int64_t col = begin; col < end; ++col) sums[col - begin] += dy[col];
    }
    for (int64_t col = begin; col < end; ++col) {
      const double old = args.mode == WriteMode::kAdd ? args.dbias[col] : 0.0;
      args.dbias[col] = static_cast<float>(old + sums[col - begin]);
    }
  });
}

}  // namespace

absl::Status LinearForward(const cpu::Context& context, const LinearForwardArgs<float>& args) {
  PENSTOCK_RETURN_IF_ERROR(
      RequireSizes("LinearForward", {{"rows", args.rows}, {"in", args.in}, {"out", args.out}}));
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.rows == 0 || (args.x != nullptr && args.w != nullptr && args.y != nullptr),
              "LinearForward", "arrays x, w and y"));
  ForEachPanel(context, args.rows, args.out, [&](const Panel& panel) {
    const float beta = PrepareOutput(args, panel);
    Sgemm(panel.rows, panel.cols, args.in, 1.0f, {args.x + panel.row * args.in, args.in},
          {args.w + panel.col * args.in, args.in, Transpose::kYes}, beta,
          args.y + panel.row * args.out + panel.col, args.out);
  });
  return absl::OkStatus();
}

absl::Status LinearBackwardInput(const cpu::Context& context,
                                 const LinearBackwardInputArgs<float>& args) {
  PENSTOCK_RETURN_IF_ERROR(RequireSizes("LinearBackwardInput",
                                        {{"rows", args.rows}, {"in", args.in}, {"out", args.out}}));
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.rows == 0 || (args.dy != nullptr && args.w != nullptr && args.dx != nullptr),
              "LinearBackwardInput", "arrays dy, w and dx"));
  ForEachPanel(context, args.rows, args.in, [&](const Panel& panel) {
    Sgemm(panel.rows, panel.cols, args.out, 1.0f, {args.dy + panel.row * args.out, args.out},
          {args.w + panel.col, args.in}, Beta(args.mode), args.dx + panel.row * args.in + panel.col,
          args.in);
  });
  return absl::OkStatus();
}

absl::Status LinearBackwardWeight(const cpu::Context& context,
                                  const LinearBackwardWeightArgs<float>& args) {
  PENSTOCK_RETURN_IF_ERROR(RequireSizes("LinearBackwardWeight",
                                        {{"rows", args.rows}, {"in", args.in}, {"out", args.out}}));
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.dw != nullptr && (args.rows == 0 || (args.dy != nullptr && args.x != nullptr)),
              "LinearBackwardWeight", "arrays dy, x and dw"));
  ForEachPanel(context, args.out, args.in, [&](const Panel& panel) {
    Sgemm(panel.rows, panel.cols, args.rows, 1.0f, {args.dy + panel.row, args.out, Transpose::kYes},
          {args.x + panel.col, args.in}, Beta(args.mode), args.dw + panel.row * args.in + panel.col,
          args.in);
  });
  if (args.dbias != nullptr) BiasGradient(context, args);
  return absl::OkStatus();
}

}  // namespace penstock
