#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/base/labels.h"
#include "engine/base/thread_pool.h"
#include "engine/kernels/cross_entropy.h"
#include "engine/kernels/embedding.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/swiglu.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/cuda_parity.h"

namespace penstock {
namespace {

std::vector<int32_t> RandomIds(int64_t count, int64_t limit, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(generator() % limit);
  return ids;
}

// Only the first `turning` pairs of a head turn; a frequency of 0 leaves the others as they are.
CudaCase RopeCase(int64_t rows, int64_t heads, int64_t dim, int64_t gap, RopeDirection direction,
                  int64_t turning) {
  constexpr int64_t kPositions = 5000;
  const int64_t stride = heads * dim + gap;
  const Floats x = RandomBf16(rows * stride, 1);
  const std::vector<int32_t> positions = RandomIds(rows, kPositions, 2);
  reference::Doubles frequencies;
  for (int64_t i = 0; i < dim / 2; ++i) {
    frequencies.push_back(i < turning ? std::pow(10000.0, -2.0 * i / dim) : 0);
  }
  const bool forward = direction == RopeDirection::kForward;
  return {.name = absl::StrCat("Rope", forward ? "Forward" : "Backward", rows, "x", heads, "x", dim,
                               "gap", gap, "turning", turning),
          .run =
              [=](const cuda::Context& context) {
                Floats table(kPositions * dim);
                FillRopeTable(frequencies, kPositions, table.data());
                const DeviceFloats device_table(table);
                const DeviceInts device_positions(positions);
                const DeviceBf16 y(x);
                EXPECT_TRUE(Rope(context, {.x = y.data(),
                                           .stride = stride,
                                           .rows = rows,
                                           .heads = heads,
                                           .head_dim = dim,
                                           .positions = device_positions.data(),
                                           .table = device_table.data(),
                                           .max_positions = kPositions,
                                           .direction = direction})
                                .ok());
                const Floats all = y.Download();
                EXPECT_EQ(Columns(all, rows, stride, heads * dim, gap),
                          Columns(x, rows, stride, heads * dim, gap));
                return std::vector<Floats>{Columns(all, rows, stride, 0, heads * dim)};
              },
          .expected =
              [=] {
                return std::vector<reference::Doubles>{
                    reference::Rope(ToDoubles(Columns(x, rows, stride, 0, heads * dim)), positions,
                                    frequencies, heads, dim, forward ? 1 : -1)};
              },
          .tolerances = {kBf16Bound}};
}

// Gates far beyond where exp overflows among them.
CudaCase SwigluCase(int64_t rows, int64_t intermediate, bool in_place) {
  Floats gate_up = RandomBf16(rows * 2 * intermediate, 1, 4.0f);
  if (rows > 1) {
    gate_up[0] = 200.0f;
    gate_up[2 * intermediate] = -200.0f;
  }
  const Floats dy = RandomBf16(rows * intermediate, 2);
  return {
      .name = absl::StrCat("Swiglu", in_place ? "InPlace" : "", rows, "x", intermediate),
      .run =
          [=](const cuda::Context& context) {
            const DeviceBf16 device_gate_up(gate_up), device_dy(dy);
            const DeviceBf16 y(Poisoned(rows * intermediate));
            const DeviceBf16 d(in_place ? gate_up : Poisoned(gate_up.size()));
            const DeviceBf16 product(in_place ? dy : Poisoned(dy.size()));
            EXPECT_TRUE(SwigluForward(context, {.gate_up = device_gate_up.data(),
                                                .y = y.data(),
                                                .rows = rows,
                                                .intermediate = intermediate})
                            .ok());
            EXPECT_TRUE(
                SwigluBackward(context, {.gate_up = in_place ? d.data() : device_gate_up.data(),
                                         .dy = in_place ? product.data() : device_dy.data(),
                                         .product = product.data(),
                                         .d_gate_up = d.data(),
                                         .rows = rows,
                                         .intermediate = intermediate})
                    .ok());
            EXPECT_TRUE(SameBits(product.Download(), y.Download()));
            return std::vector<Floats>{y.Download(), d.Download()};
          },
      .expected =
          [=] {
            return std::vector<reference::Doubles>{
                reference::Swiglu(ToDoubles(gate_up), rows, intermediate),
                reference::SwigluBackward(ToDoubles(gate_up), ToDoubles(dy), rows, intermediate)};
          },
      .tolerances = {kBf16Bound, kBf16Bound}};
}

// What the CPU makes of it, which adds in the same order.
Floats EmbeddingBackwardOnCpu(const EmbeddingBackwardArgs<float>& args, Floats dtable) {
  ThreadPool pool(1);
  EmbeddingBackwardArgs<float> with_table = args;
  with_table.dtable = dtable.data();
  EXPECT_TRUE(EmbeddingBackward(cpu::Context{&pool}, with_table).ok());
  return dtable;
}

CudaCase EmbeddingCase(int64_t rows, int64_t cols, int64_t vocab, WriteMode mode) {
  const std::vector<int32_t> ids = RandomIds(rows, vocab, 1);
  const Floats table = RandomBf16(vocab * cols, 2);
  const Floats dout = RandomBf16(rows * cols, 3);
  const bool add = mode == WriteMode::kAdd;
  const Floats start = add ? Random(table.size(), 4) : Poisoned(table.size());
  return {.name = absl::StrCat("Embedding", add ? "Add" : "Overwrite", rows, "x", cols, "x", vocab),
          .run =
              [=](const cuda::Context& context) {
                const DeviceInts device_ids(ids);
                const DeviceBf16 device_table(table), device_dout(dout);
                const DeviceBf16 out(Poisoned(rows * cols));
                const DeviceFloats dtable(start);
                EXPECT_TRUE(EmbeddingForward(context, {.ids = device_ids.data(),
                                                       .table = device_table.data(),
                                                       .out = out.data(),
                                                       .rows = rows,
                                                       .cols = cols,
                                                       .vocab = vocab})
                                .ok());
                const int64_t scratch_bytes = CudaEmbeddingScratchBytes(rows);
                const DeviceFloats scratch(Poisoned(scratch_bytes / 4));
                EmbeddingBackwardArgs<bf16> args{.ids = device_ids.data(),
                                                 .dout = device_dout.data(),
                                                 .dtable = dtable.data(),
                                                 .rows = rows,
                                                 .cols = cols,
                                                 .vocab = vocab,
                                                 .mode = mode,
                                                 .scratch = scratch.data(),
                                                 .scratch_bytes = scratch_bytes - 1};
                EXPECT_EQ(EmbeddingBackward(context, args).ok(), rows == 0);
                EXPECT_TRUE(rows == 0 || SameBits(dtable.Download(), start));
                const DeviceFloats fresh(start);
                args.dtable = fresh.data();
                args.scratch_bytes = scratch_bytes;
                EXPECT_TRUE(EmbeddingBackward(context, args).ok());
                EXPECT_TRUE(SameBits(fresh.Download(), EmbeddingBackwardOnCpu({.ids = ids.data(),
                                                                               .dout = dout.data(),
                                                                               .dtable = nullptr,
                                                                               .rows = rows,
                                                                               .cols = cols,
                                                                               .vocab = vocab,
                                                                               .mode = mode},
                                                                              start)));
                return std::vector<Floats>{out.Download(), fresh.Download()};
              },
          .expected =
              [=] {
                reference::Doubles out;
                reference::Doubles dtable(table.size(), 0.0);
                if (add) dtable = ToDoubles(start);
                for (int64_t row = 0; row < rows; ++row) {
                  for (int64_t col = 0; col < cols; ++col) {
                    out.push_back(table[ids[row] * cols + col]);
                    dtable[ids[row] * cols + col] += dout[row * cols + col];
                  }
                }
                return std::vector<reference::Doubles>{out, dtable};
              },
          .tolerances = {0, kFloatBound}};
}

// The loss alone, then loss and gradient; sums are added to. Every third label is left out.
CudaCase CrossEntropyCase(int64_t rows, int64_t vocab, float deviation) {
  constexpr float kScale = 0.5f;
  const Floats logits = RandomBf16(rows * vocab, 1, deviation);
  std::vector<int32_t> labels = RandomIds(rows, vocab, 2);
  int64_t labelled = rows;
  for (int64_t row = 2; row < rows; row += 3, --labelled) labels[row] = kIgnoreLabel;
  return {.name = absl::StrCat("CrossEntropy", rows, "x", vocab, "deviation",
                               static_cast<int>(deviation)),
          .run =
              [=](const cuda::Context& context) {
                const DeviceBf16 untouched(logits), gradient(logits);
                const DeviceInts device_labels(labels);
                const DeviceArray<double> loss({3.0}), loss_only({3.0});
                const DeviceArray<int64_t> count({5});
                CrossEntropyArgs<bf16> args{.logits = gradient.data(),
                                            .labels = device_labels.data(),
                                            .rows = rows,
                                            .vocab = vocab,
                                            .scale = kScale,
                                            .loss_sum = loss.data(),
                                            .labelled_tokens = count.data(),
                                            .mode = CrossEntropyMode::kLossAndGradient};
                EXPECT_TRUE(CrossEntropy(context, args).ok());
                EXPECT_EQ(count.Download()[0], 5 + labelled);
                args.logits = untouched.data();
                args.loss_sum = loss_only.data();
                args.mode = CrossEntropyMode::kLoss;
                EXPECT_TRUE(CrossEntropy(context, args).ok());
                EXPECT_EQ(untouched.Download(), logits);
                EXPECT_EQ(loss.Download(), loss_only.Download());
                return std::vector<Floats>{{static_cast<float>(loss.Download()[0] - 3.0)},
                                           gradient.Download()};
              },
          .expected =
              [=] {
                const auto expected =
                    reference::CrossEntropy(ToDoubles(logits), labels, vocab, kScale);
                return std::vector<reference::Doubles>{{expected.loss_sum}, expected.gradient};
              },
          .tolerances = {kFloatBound, kBf16Bound}};
}

}  // namespace

std::vector<CudaCase> PointwiseCudaCases() {
  std::vector<CudaCase> cases;
  for (const RopeDirection direction : {RopeDirection::kForward, RopeDirection::kBackward}) {
    cases.push_back(RopeCase(0, 1, 4, 0, direction, 2));
    cases.push_back(RopeCase(7, 1, 2, 0, direction, 1));
    cases.push_back(RopeCase(130, 3, 10, 7, direction, 5));
    cases.push_back(RopeCase(300, 4, 64, 256, direction, 32));
    cases.push_back(RopeCase(65, 2, 160, 0, direction, 80));
    cases.push_back(RopeCase(65, 2, 192, 8, direction, 30));
    cases.push_back(RopeCase(130, 4, 256, 512, direction, 128));
    cases.push_back(RopeCase(130, 4, 256, 512, direction, 32));
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
    cases.push_back(EmbeddingCase(700, 33, 7, mode));
    cases.push_back(EmbeddingCase(65, 1096, 1000, mode));
    // One row more than a tile of the sort, then one token for all; then two passes and three.
    cases.push_back(EmbeddingCase(2049, 24, 1, mode));
    cases.push_back(EmbeddingCase(6000, 40, 300, mode));
    cases.push_back(EmbeddingCase(5000, 8, 70000, mode));
  }
  cases.push_back(CrossEntropyCase(0, 5, 1));
  cases.push_back(CrossEntropyCase(7, 1, 1));
  cases.push_back(CrossEntropyCase(50, 33, 1));
  cases.push_back(CrossEntropyCase(20, 5001, 3));
  cases.push_back(CrossEntropyCase(9, 8192, 30));
  cases.push_back(CrossEntropyCase(1100, 16, 2));
  return cases;
}

}  // namespace penstock
