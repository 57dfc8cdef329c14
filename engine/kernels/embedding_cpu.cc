// The backward op cuts the columns, not the rows: a token that occurs in many rows is then added
// to by one task, in the order of the rows.
#include <algorithm>

#include "engine/base/status.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/embedding.h"
#include "engine/kernels/parallel.h"

namespace penstock {
namespace {

absl::Status RequireIds(std::string_view op, const int32_t* ids, int64_t rows, int64_t vocab) {
  for (int64_t row = 0; row < rows; ++row) {
    PENSTOCK_RETURN_IF_ERROR(Require(ids[row] >= 0 && ids[row] < vocab, op,
                                     "every id in [0, vocab)",
                                     {{"row", row}, {"id", ids[row]}, {"vocab", vocab}}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status EmbeddingForward(const cpu::Context& context,
                              const EmbeddingForwardArgs<float>& args) {
  PENSTOCK_RETURN_IF_ERROR(RequireSizes(
      "EmbeddingForward", {{"rows", args.rows}, {"cols", args.cols}, {"vocab", args.vocab}}));
  PENSTOCK_RETURN_IF_ERROR(Require(
      args.rows == 0 || (args.ids != nullptr && args.table != nullptr && args.out != nullptr),
      "EmbeddingForward", "arrays ids, table and out"));
  PENSTOCK_RETURN_IF_ERROR(RequireIds("EmbeddingForward", args.ids, args.rows, args.vocab));
  ParallelBlocks(context, args.rows, RowsPerBlock(args.cols), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::copy_n(args.table + args.ids[row] * args.cols, args.cols, args.out + row * args.cols);
    }
  });
  return absl::OkStatus();
}

absl::Status EmbeddingBackward(const cpu::Context& context,
                               const EmbeddingBackwardArgs<float>& args) {
  PENSTOCK_RETURN_IF_ERROR(RequireSizes(
      "EmbeddingBackward", {{"rows", args.rows}, {"cols", args.cols}, {"vocab", args.vocab}}));
  PENSTOCK_RETURN_IF_ERROR(Require(
      args.dtable != nullptr && (args.rows == 0 || (args.ids != nullptr && args.dout != nullptr)),
      "EmbeddingBackward", "arrays ids, dout and dtable"));
  PENSTOCK_RETURN_IF_ERROR(RequireIds("EmbeddingBackward", args.ids, args.rows, args.vocab));
  if (args.mode == WriteMode::kOverwrite) {
    PENSTOCK_RETURN_IF_ERROR(FillFloats(context, args.dtable, 0.0f, args.vocab * args.cols));
  }
  ParallelBlocks(context, args.cols, kColumnBlock, [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < args.rows; ++row) {
      const float* dout = args.dout + row * args.cols;
      float* gradient = args.dtable + args.ids[row] * args.cols;
      for (int64_t col = begin; col < end; ++col) gradient[col] += dout[col];
    }
  });
  return absl::OkStatus();
}

}  // namespace penstock
