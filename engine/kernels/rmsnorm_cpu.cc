// The backward op makes two passes over dy and x: one by columns for dw, where a task owns 32
// columns of all rows, and one by rows for dx. That needs no scratch for partial sums and gives
// every sum one order.
#include <cmath>

#include "engine/base/status.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/rmsnorm.h"
#include "engine/kernels/vector_math.h"

namespace penstock {
namespace {

struct ForwardRows {
  PENSTOCK_ISA_BODY void Run(const RmsNormForwardArgs<float>& args, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = args.x + row * args.cols;
      float* y = args.y + row * args.cols;
      const double sum = LaneSum(
          args.cols, [x](int64_t i) __attribute__((always_inline)) { return double{x[i]} * x[i]; });
      const float rstd =
          static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(args.cols) + args.eps));
      args.rstd[row] = rstd;
      for (int64_t col = 0; col < args.cols; ++col) y[col] = x[col] * rstd * args.w[col];
    }
  }
};

struct BackwardInputRows {
  PENSTOCK_ISA_BODY void Run(const RmsNormBackwardArgs<float>& args, int64_t begin, int64_t end) {
    const float* w = args.w;
    for (int64_t row = begin; row < end; ++row) {
      const float* x = args.x + row * args.cols;
      const float* dy = args.dy + row * args.cols;
      float* dx = args.dx + row * args.cols;
      const float rstd = args.rstd[row];
      const double sum = LaneSum(
          args.cols, [=](int64_t i)
                         __attribute__((always_inline)) { return double{dy[i] * w[i]} * x[i]; });
      const float mean = static_cast<float>(sum * rstd / static_cast<double>(args.cols));
      if (args.dx_mode == WriteMode::kAdd) {
        for (int64_t col = 0; col < args.cols; ++col) {
          dx[col] += rstd * (dy[col] * w[col] - x[col] * rstd * mean);
        }
      } else {
        for (int64_t col = 0; col < args.cols; ++col) {
          dx[col] = rstd * (dy[col] * w[col] - x[col] * rstd * mean);
        }
      }
    }
  }
};

struct BackwardWeightColumns {
  PENSTOCK_ISA_BODY void Run(const RmsNormBackwardArgs<float>& args, int64_t begin, int64_t end) {
    double sums[kColumnBlock] = {};
    for (int64_t row = 0; row < args.rows; ++row) {
      const float* x = args.x + row * args.cols + begin;
      const float* dy = args.dy + row * args.cols + begin;
      const float rstd = args.rstd[row];
      for (int64_t i = 0; i < end - begin; ++i) sums[i] += double{dy[i]} * (x[i] * rstd);
    }
    for (int64_t col = begin; col < end; ++col) {
      const double old = args.dw_mode == WriteMode::kAdd ? args.dw[col] : 0.0;
      args.dw[col] = static_cast<float>(old + sums[col - begin]);
    }
  }
};

}  // namespace

absl::Status RmsNormForward(const cpu::Context& context, const RmsNormForwardArgs<float>& args) {
  PENSTOCK_RETURN_IF_ERROR(
      RequireSizes("RmsNormForward", {{"rows", args.rows}, {"cols", args.cols}}));
  PENSTOCK_RETURN_IF_ERROR(Require(args.rows == 0 || (args.x != nullptr && args.w != nullptr &&
                                                      args.y != nullptr && args.rstd != nullptr),
                                   "RmsNormForward", "arrays x, w, y and rstd"));
  ParallelBlocks(context, args.rows, RowsPerBlock(args.cols),
                 [&](int64_t begin, int64_t end) { RunForIsa<ForwardRows>(args, begin, end); });
  return absl::OkStatus();
}

absl::Status RmsNormBackward(const cpu::Context& context, const RmsNormBackwardArgs<float>& args) {
  PENSTOCK_RETURN_IF_ERROR(
      RequireSizes("RmsNormBackward", {{"rows", args.rows}, {"cols", args.cols}}));
  PENSTOCK_RETURN_IF_ERROR(Require(
      args.dw != nullptr &&
          (args.rows == 0 || (args.dy != nullptr && args.x != nullptr && args.w != nullptr &&
                              args.rstd != nullptr && args.dx != nullptr)),
      "RmsNormBackward", "arrays dy, x, w, rstd, dx and dw"));
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.rows == 0 || args.dx != args.dy || args.dx_mode == WriteMode::kOverwrite,
              "RmsNormBackward", "dx_mode kOverwrite where dx is dy"));
  // The weight gradient first: dx may be dy.
  ParallelBlocks(context, args.cols, kColumnBlock, [&](int64_t begin, int64_t end) {
    RunForIsa<BackwardWeightColumns>(args, begin, end);
  });
  ParallelBlocks(context, args.rows, RowsPerBlock(args.cols), [&](int64_t begin, int64_t end) {
    RunForIsa<BackwardInputRows>(args, begin, end);
  });
  return absl::OkStatus();
}

}  // namespace penstock
