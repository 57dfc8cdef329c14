// Linear layer on CUDA: cuBLASLt, with the bias in its epilogue and a residual as the matrix that
// beta multiplies. dbias is a sum over rows (column_sum_cuda.h).
#include "engine/base/status.h"
#include "engine/cuda/context.h"
#include "engine/cuda/status.h"
#include "engine/kernels/column_sum_cuda.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/linear.h"

namespace penstock {
namespace {

template <typename Args>
absl::Status CheckSizes(std::string_view op, const Args& args) {
  PENSTOCK_RETURN_IF_ERROR(
      RequireSizes(op, {{"rows", args.rows}, {"in", args.in}, {"out", args.out}}));
  return Require(args.in >= 1 && args.out >= 1, op, "at least one input and output",
                 {{"in", args.in}, {"out", args.out}});
}

absl::Status Run(const cuda::Context& context, const cuda::MatmulArgs& args) {
  return context.matmul->Run(context.stream, {context.workspace, context.workspace_bytes}, args);
}

}  // namespace

absl::Status LinearForward(const cuda::Context& context, const LinearForwardArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(CheckSizes("LinearForward", args));
  if (args.rows == 0) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(Require(args.x != nullptr && args.w != nullptr && args.y != nullptr,
                                   "LinearForward", "arrays x, w and y"));
  return Run(context, {.m = args.rows,
                       .n = args.out,
                       .k = args.in,
                       .a = args.x,
                       .a_operand = cuda::Operand::kAsStored,
                       .b = args.w,
                       .b_operand = cuda::Operand::kTransposed,
                       .bias = args.bias,
                       .c = args.residual,
                       .d = args.y,
                       .result = cuda::Result::kBf16});
}

absl::Status LinearBackwardInput(const cuda::Context& context,
                                 const LinearBackwardInputArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(CheckSizes("LinearBackwardInput", args));
  if (args.rows == 0) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(Require(args.dy != nullptr && args.w != nullptr && args.dx != nullptr,
                                   "LinearBackwardInput", "arrays dy, w and dx"));
  return Run(context, {.m = args.rows,
                       .n = args.in,
                       .k = args.out,
                       .a = args.dy,
                       .a_operand = cuda::Operand::kAsStored,
                       .b = args.w,
                       .b_operand = cuda::Operand::kAsStored,
                       .c = args.mode == WriteMode::kAdd ? args.dx : nullptr,
                       .d = args.dx,
                       .result = cuda::Result::kBf16});
}

absl::Status LinearBackwardWeight(const cuda::Context& context,
                                  const LinearBackwardWeightArgs<bf16>& args) {
  PENSTOCK_RETURN_IF_ERROR(CheckSizes("LinearBackwardWeight", args));
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.dw != nullptr && (args.rows == 0 || (args.dy != nullptr && args.x != nullptr)),
              "LinearBackwardWeight", "arrays dy, x and dw"));
  if (args.dbias != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(cuda::ColumnSum(context, "LinearBackwardWeight", args.dy, args.rows,
                                             args.out, args.mode, args.dbias));
  }
  if (args.rows == 0) {
    if (args.mode == WriteMode::kAdd) return absl::OkStatus();
    return cuda::CudaStatus(
        cudaMemsetAsync(args.dw, 0, args.out * args.in * sizeof(float), context.stream),
        "LinearBackwardWeight");
  }
  return Run(context, {.m = args.out,
                       .n = args.in,
                       .k = args.rows,
                       .a = args.dy,
                       .a_operand = cuda::Operand::kTransposed,
                       .b = args.x,
                       .b_operand = cuda::Operand::kAsStored,
                       .c = args.mode == WriteMode::kAdd ? args.dw : nullptr,
                       .d = args.dw,
                       .result = cuda::Result::kFloat});
}

}  // namespace penstock
