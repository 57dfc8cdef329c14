// A task owns 32 columns of all rows and heads for dw, and a block of rows for dx: no scratch for
// partial sums, and one order of addition.
#include <algorithm>
#include <cmath>

#include "engine/base/status.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/head_norm.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/vector_math.h"

namespace penstock {
namespace {

struct ForwardRows {
  PENSTOCK_ISA_BODY void Run(const HeadNormForwardArgs<float>& args, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < args.heads; ++head) {
        float* x = args.x + row * args.x_stride + head * args.head_dim;
        float* raw = args.raw + row * args.raw_stride + head * args.head_dim;
        const double sum = LaneSum(
            args.head_dim, [x](int64_t i)
                               __attribute__((always_inline)) { return double{x[i]} * x[i]; });
        const float rstd = static_cast<float>(
            1.0 / std::sqrt(sum / static_cast<double>(args.head_dim) + args.eps));
        args.rstd[row * args.heads + head] = rstd;
        std::copy_n(x, args.head_dim, raw);
        for (int64_t i = 0; i < args.head_dim; ++i) x[i] = raw[i] * rstd * args.w[i];
      }
    }
  }
};

struct BackwardInputRows {
  PENSTOCK_ISA_BODY void Run(const HeadNormBackwardArgs<float>& args, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < args.heads; ++head) {
        const float* x = args.x + row * args.x_stride + head * args.head_dim;
        const float* dy = args.dy + row * args.dy_stride + head * args.head_dim;
        float* dx = args.dx + row * args.dx_stride + head * args.head_dim;
        const float* w = args.w;
        const float rstd = args.rstd[row * args.heads + head];
        const double sum = LaneSum(
            args.head_dim, [=](int64_t i) __attribute__((always_inline)) {
              return double{dy[i] * w[i]} * x[i];
            });
        const float mean = static_cast<float>(sum * rstd / static_cast<double>(args.head_dim));
        for (int64_t i = 0; i < args.head_dim; ++i) {
          dx[i] = rstd * (dy[i] * w[i] - x[i] * rstd * mean);
        }
      }
    }
  }
};

struct BackwardWeightColumns {
  PENSTOCK_ISA_BODY void Run(const HeadNormBackwardArgs<float>& args, int64_t begin, int64_t end) {
    double sums[kColumnBlock] = {};
    for (int64_t row = 0; row < args.rows; ++row) {
      for (int64_t head = 0; head < args.heads; ++head) {
        const float* x = args.x + row * args.x_stride + head * args.head_dim + begin;
        const float* dy = args.dy + row * args.dy_stride + head * args.head_dim + begin;
        const float rstd = args.rstd[row * args.heads + head];
        for (int64_t i = 0; i < end - begin; ++i) sums[i] += double{dy[i]} * (x[i] * rstd);
      }
    }
    for (int64_t i = begin; i < end; ++i) {
      const double old = args.dw_mode == WriteMode::kAdd ? args.dw[i] : 0.0;
      args.dw[i] = static_cast<float>(old + sums[i - begin]);
    }
  }
};

}  // namespace

absl::Status HeadNormForward(const cpu::Context& context, const HeadNormForwardArgs<float>& args) {
  PENSTOCK_RETURN_IF_ERROR(RequireSizes("HeadNormForward", {{"rows", args.rows},
                                                            {"heads", args.heads},
                                                            {"head_dim", args.head_dim},
                                                            {"x_stride", args.x_stride},
                                                            {"raw_stride", args.raw_stride}}));
  PENSTOCK_RETURN_IF_ERROR(Require(args.rows == 0 || (args.x != nullptr && args.w != nullptr &&
                                                      args.raw != nullptr && args.rstd != nullptr),
                                   "HeadNormForward", "arrays x, raw, w and rstd"));
  const int64_t block = RowsPerBlock(args.heads * args.head_dim);
  ParallelBlocks(context, args.rows, block,
                 [&](int64_t begin, int64_t end) { RunForIsa<ForwardRows>(args, begin, end); });
  return absl::OkStatus();
}

absl::Status HeadNormBackward(const cpu::Context& context,
                              const HeadNormBackwardArgs<float>& args) {
  PENSTOCK_RETURN_IF_ERROR(RequireSizes("HeadNormBackward", {{"rows", args.rows},
                                                             {"heads", args.heads},
                                                             {"head_dim", args.head_dim},
                                                             {"dy_stride", args.dy_stride},
                                                             {"x_stride", args.x_stride},
                                                             {"dx_stride", args.dx_stride}}));
  PENSTOCK_RETURN_IF_ERROR(Require(
      args.dw != nullptr &&
          (args.rows == 0 || (args.dy != nullptr && args.x != nullptr && args.w != nullptr &&
                              args.rstd != nullptr && args.dx != nullptr)),
      "HeadNormBackward", "arrays dy, x, w, rstd, dx and dw"));
  // The weight gradient first: dx may be dy.
  ParallelBlocks(context, args.head_dim, kColumnBlock, [&](int64_t begin, int64_t end) {
    RunForIsa<BackwardWeightColumns>(args, begin, end);
  });
  const int64_t block = RowsPerBlock(args.heads * args.head_dim);
  ParallelBlocks(context, args.rows, block, [&](int64_t begin, int64_t end) {
    RunForIsa<BackwardInputRows>(args, begin, end);
  });
  return absl::OkStatus();
}

}  // namespace penstock
