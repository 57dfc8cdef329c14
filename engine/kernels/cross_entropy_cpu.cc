#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/status.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/cross_entropy.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/vector_math.h"

namespace penstock {
namespace {

// Blocks of rows are cut by the number of rows alone; their losses wait in an array of fixed
// size and are added in the order of the rows.
constexpr int64_t kMaxBlocks = 256;
// Exponentials that are summed at a time: a multiple of kLanes that fits the first cache.
constexpr int64_t kChunk = 1024;

struct ExpSum {
  // sum exp(logits - shift) over a row. The exponentials stay in the row in kLossAndGradient,
  // else the row is only read.
  PENSTOCK_ISA_BODY double Sum(float* row, int64_t vocab, float shift, CrossEntropyMode mode) {
    float buffer[kChunk];
    double sum = 0;
    for (int64_t begin = 0; begin < vocab; begin += kChunk) {
      const int64_t count = std::min(kChunk, vocab - begin);
      float* in = row + begin;
      float* out = mode == CrossEntropyMode::kLossAndGradient ? in : buffer;
      for (int64_t i = 0; i < count; ++i) out[i] = Exp(in[i] - shift);
      sum += LaneSum(
          count, [out](int64_t i) __attribute__((always_inline)) { return out[i]; });
    }
    return sum;
  }
};

struct LossRows {
  PENSTOCK_ISA_BODY void Run(const CrossEntropyArgs<float>& args, int64_t begin, int64_t end,
                             double* loss) {
    double total = 0;
    for (int64_t row = begin; row < end; ++row) {
      float* logits = args.logits + row * args.vocab;
      const int32_t label = args.labels[row];
      const bool gradient = args.mode == CrossEntropyMode::kLossAndGradient;
      if (label == kIgnoreLabel) {
        if (gradient) std::fill_n(logits, args.vocab, 0.0f);
        continue;
      }
      const double label_logit = logits[label];
      const float max = Max(logits, args.vocab);
      const double sum = ExpSum::Sum(logits, args.vocab, max, args.mode);
      total += (std::log(sum) + max) - label_logit;
      if (!gradient) continue;
      const float label_exp = logits[label];
      const float factor = static_cast<float>(args.scale / sum);
      for (int64_t i = 0; i < args.vocab; ++i) logits[i] *= factor;
      logits[label] = static_cast<float>(args.scale * (label_exp / sum - 1.0));
    }
    *loss = total;
  }
};

absl::Status CheckContract(const CrossEntropyArgs<float>& args) {
  PENSTOCK_RETURN_IF_ERROR(
      RequireSizes("CrossEntropy", {{"rows", args.rows}, {"vocab", args.vocab}}));
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.vocab >= 1, "CrossEntropy", "vocab >= 1", {{"vocab", args.vocab}}));
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.loss_sum != nullptr && args.labelled_tokens != nullptr &&
                  (args.rows == 0 || (args.logits != nullptr && args.labels != nullptr)),
              "CrossEntropy", "arrays logits and labels, and both sums"));
  for (int64_t row = 0; row < args.rows; ++row) {
    const int32_t label = args.labels[row];
    PENSTOCK_RETURN_IF_ERROR(Require(label == kIgnoreLabel || (label >= 0 && label < args.vocab),
                                     "CrossEntropy",
                                     "every label in [0, vocab), or -1 to ignore the row",
                                     {{"row", row}, {"label", label}, {"vocab", args.vocab}}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CrossEntropy(const cpu::Context& context, const CrossEntropyArgs<float>& args) {
  PENSTOCK_RETURN_IF_ERROR(CheckContract(args));
  const int64_t block = std::max(CeilDiv(args.rows, kMaxBlocks), RowsPerBlock(args.vocab));
  std::array<double, kMaxBlocks> losses;
  ParallelBlocks(context, args.rows, block, [&](int64_t begin, int64_t end) {
    RunForIsa<LossRows>(args, begin, end, &losses[begin / block]);
  });
  for (int64_t i = 0; i < CeilDiv(args.rows, block); ++i) *args.loss_sum += losses[i];
  *args.labelled_tokens += std::count_if(args.labels, args.labels + args.rows,
                                         [](int32_t label) { return label != kIgnoreLabel; });
  return absl::OkStatus();
}

}  // namespace penstock
