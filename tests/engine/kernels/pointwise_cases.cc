#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/kernels/cross_entropy.h"
#include "engine/kernels/embedding.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/swiglu.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/parity.h"

namespace penstock {
namespace {

std::vector<int32_t> RandomIds(int64_t count, int64_t limit, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(generator() % limit);
  return ids;
}

ParityCase RopeCase(int64_t rows, int64_t heads, int64_t dim, int64_t gap,
                    RopeDirection direction) {
  constexpr int64_t kPositions = 5000;
  const int64_t stride = heads * dim + gap;
  const Floats x = Random(rows * stride, 1);
  const std::vector<int32_t> positions = RandomIds(rows, kPositions, 2);
  reference::Doubles frequencies;
  for (int64_t i = 0; i < dim / 2; ++i) frequencies.push_back(std::pow(10000.0, -2.0 * i / dim));
  const bool forward = direction == RopeDirection::kForward;
  return {.name = absl::StrCat("Rope", forward ? "Forward" : "Backward", rows, "x", heads, "x", dim,
                               "gap", gap),
          .run =
              [=](const cpu::Context& context) {
                Floats table = Poisoned(kPositions * dim);
                FillRopeTable(frequencies, kPositions, table.data());
                Floats y = x;
                EXPECT_TRUE(Rope(context, {.x = y.data(),
                                           .stride = stride,
                                           .rows = rows,
                                           .heads = heads,
                                           .head_dim = dim,
                                           .positions = positions.data(),
                                           .table = table.data(),
                                           .max_positions = kPositions,
                                           .direction = direction})
                                .ok());
                EXPECT_EQ(Columns(y, rows, stride, heads * dim, gap),
                          Columns(x, rows, stride, heads * dim, gap));
                return std::vector<Floats>{Columns(y, rows, stride, 0, heads * dim)};
              },
          .expected =
              [=] {
                return std::vector<reference::Doubles>{
                    reference::Rope(ToDoubles(Columns(x, rows, stride, 0, heads * dim)), positions,
                                    frequencies, heads, dim, forward ? 1 : -1)};
              },
          .tolerance = 2e-7};
}

// Gates far beyond where exp overflows among them.
ParityCase SwigluCase(int64_t rows, int64_t intermediate, bool in_place) {
  Floats gate_up = Random(rows * 2 * intermediate, 1, 4.0f);
  if (rows > 1) {
    gate_up[0] = 200.0f;
    gate_up[2 * intermediate] = -200.0f;
  }
  const Floats dy = Random(rows * intermediate, 2);
  return {
      .name = absl::StrCat("Swiglu", in_place ? "InPlace" : "", rows, "x", intermediate),
      .run =
          [=](const cpu::Context& context) {
            Floats y = Poisoned(rows * intermediate);
            EXPECT_TRUE(SwigluForward(context, {.gate_up = gate_up.data(),
                                                .y = y.data(),
                                                .rows = rows,
                                                .intermediate = intermediate})
                            .ok());
            Floats d = in_place ? gate_up : Poisoned(gate_up.size());
            Floats product = in_place ? dy : Poisoned(dy.size());
            EXPECT_TRUE(SwigluBackward(context, {.gate_up = in_place ? d.data() : gate_up.data(),
                                                 .dy = in_place ? product.data() : dy.data(),
                                                 .product = product.data(),
                                                 .d_gate_up = d.data(),
                                                 .rows = rows,
                                                 .intermediate = intermediate})
                            .ok());
            EXPECT_TRUE(SameBits(product, y));
            return std::vector<Floats>{y, d};
          },
      .expected =
          [=] {
            return std::vector<reference::Doubles>{
                reference::Swiglu(ToDoubles(gate_up), rows, intermediate),
                reference::SwigluBackward(ToDoubles(gate_up), ToDoubles(dy), rows, intermediate)};
          },
      .tolerance = 5e-7};
}

ParityCase EmbeddingCase(int64_t rows, int64_t cols, int64_t vocab, WriteMode mode) {
  const std::vector<int32_t> ids = RandomIds(rows, vocab, 1);
  const Floats table = Random(vocab * cols, 2);
  const Floats dout = Random(rows * cols, 3);
  const bool add = mode == WriteMode::kAdd;
  const Floats start = add ? Random(table.size(), 4) : Poisoned(table.size());
  return {.name = absl::StrCat("Embedding", add ? "Add" : "Overwrite", rows, "x", cols, "x", vocab),
          .run =
              [=](const cpu::Context& context) {
                Floats out = Poisoned(rows * cols);
                EXPECT_TRUE(EmbeddingForward(context, {.ids = ids.data(),
                                                       .table = table.data(),
                                                       .out = out.data(),
                                                       .rows = rows,
                                                       .cols = cols,
                                                       .vocab = vocab})
                                .ok());
                Floats dtable = start;
                EXPECT_TRUE(EmbeddingBackward(context, {.ids = ids.data(),
                                                        .dout = dout.data(),
                                                        .dtable = dtable.data(),
                                                        .rows = rows,
                                                        .cols = cols,
                                                        .vocab = vocab,
                                                        .mode = mode})
                                .ok());
                return std::vector<Floats>{out, dtable};
              },
          .expected =
              [=] {
                reference::Doubles out;
                reference::Doubles dtable(table.size(), 0.0);
                if (add) dtable = ToDoubles(start);
                for (int64_t r = 0; r < rows; ++r) {
                  for (int64_t c = 0; c < cols; ++c) {
                    out.push_back(table[ids[r] * cols + c]);
                    dtable[ids[r] * cols + c] += dout[r * cols + c];
                  }
                }
                return std::vector<reference::Doubles>{out, dtable};
              },
          .tolerance = 5e-7};
}

ParityCase CrossEntropyCase(int64_t rows, int64_t vocab, float deviation, bool all_ignored) {
  const Floats logits = Random(rows * vocab, 1, deviation);
  std::vector<int32_t> labels = RandomIds(rows, vocab, 2);
  for (int64_t r = 0; r < rows; ++r) {
    if (all_ignored || r % 3 == 1) labels[r] = kIgnoreLabel;
  }
  constexpr float kScale = 0.125f;
  const int64_t labelled = rows - std::count(labels.begin(), labels.end(), kIgnoreLabel);
  return {.name = absl::StrCat("CrossEntropy", all_ignored ? "Ignored" : "", rows, "x", vocab,
                               "deviation", static_cast<int64_t>(deviation)),
          .run =
              [=](const cpu::Context& context) {
                Floats gradient = logits;
                Floats untouched = logits;
                double loss = 3.0;  // both sums are added to
                double loss_only = 3.0;
                int64_t count = 5;
                CrossEntropyArgs<float> args{.logits = gradient.data(),
                                             .labels = labels.data(),
                                             .rows = rows,
                                             .vocab = vocab,
                                             .scale = kScale,
                                             .loss_sum = &loss,
                                             .labelled_tokens = &count,
                                             .mode = CrossEntropyMode::kLossAndGradient};
                EXPECT_TRUE(CrossEntropy(context, args).ok());
                EXPECT_EQ(count, 5 + labelled);
                args.logits = untouched.data();
                args.loss_sum = &loss_only;
                args.mode = CrossEntropyMode::kLoss;
                EXPECT_TRUE(CrossEntropy(context, args).ok());
                EXPECT_EQ(count, 5 + 2 * labelled);
                EXPECT_EQ(untouched, logits);
                EXPECT_EQ(loss, loss_only);
                return std::vector<Floats>{{static_cast<float>(loss - 3.0)}, gradient};
              },
          .expected =
              [=] {
                const auto expected =
                    reference::CrossEntropy(ToDoubles(logits), labels, vocab, kScale);
                return std::vector<reference::Doubles>{{expected.loss_sum}, expected.gradient};
              },
          .tolerance = 5e-7};
}

}  // namespace

std::vector<ParityCase> PointwiseCases() {
  std::vector<ParityCase> cases;
  for (const RopeDirection direction : {RopeDirection::kForward, RopeDirection::kBackward}) {
    cases.push_back(RopeCase(0, 1, 4, 0, direction));
    cases.push_back(RopeCase(7, 1, 2, 0, direction));
    cases.push_back(RopeCase(130, 3, 10, 7, direction));
    cases.push_back(RopeCase(300, 4, 64, 256, direction));
  }
  for (const bool in_place : {false, true}) {
    cases.push_back(SwigluCase(0, 8, in_place));
    cases.push_back(SwigluCase(1, 1, in_place));
    cases.push_back(SwigluCase(33, 17, in_place));
    cases.push_back(SwigluCase(100, 344, in_place));
  }
  for (const WriteMode mode : {WriteMode::kOverwrite, WriteMode::kAdd}) {
    cases.push_back(EmbeddingCase(0, 4, 3, mode));
    cases.push_back(EmbeddingCase(9, 1, 1, mode));
    cases.push_back(EmbeddingCase(300, 33, 7, mode));
    cases.push_back(EmbeddingCase(65, 64, 1000, mode));
  }
  cases.push_back(CrossEntropyCase(0, 5, 1, false));
  cases.push_back(CrossEntropyCase(7, 1, 1, false));
  cases.push_back(CrossEntropyCase(50, 33, 1, false));
  cases.push_back(CrossEntropyCase(20, 5001, 3, false));
  cases.push_back(CrossEntropyCase(9, 100, 1000, false));
  cases.push_back(CrossEntropyCase(12, 40, 1, true));
  cases.push_back(CrossEntropyCase(1000, 17, 2, false));
  return cases;
}

}  // namespace penstock
