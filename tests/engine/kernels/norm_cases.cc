#include "absl/strings/str_cat.h"
#include "engine/kernels/head_norm.h"
#include "engine/kernels/rmsnorm.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/parity.h"

namespace penstock {
namespace {

constexpr float kEps = 1e-5f;

// In place: y is x, dx is dy.
enum class Place { kOut, kIn };

reference::Doubles Sum(reference::Doubles a, const Floats& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

ParityCase Rms(int64_t rows, int64_t cols, Place place, WriteMode mode) {
  const Floats x = Random(rows * cols, 1, 3.0f);
  const Floats w = Random(cols, 2);
  const Floats dy = Random(rows * cols, 3);
  const bool add = mode == WriteMode::kAdd;
  const Floats dx0 = add ? Random(rows * cols, 4) : Poisoned(rows * cols);
  const Floats dw0 = add ? Random(cols, 5) : Poisoned(cols);
  return {
      .name = absl::StrCat("RmsNorm", add ? "Add" : "Overwrite",
                           place == Place::kIn ? "InPlace" : "", rows, "x", cols),
      .run =
          [=](const cpu::Context& context) {
            Floats y = place == Place::kIn ? x : Poisoned(rows * cols);
            Floats rstd = Poisoned(rows);
            const float* in = place == Place::kIn ? y.data() : x.data();
            EXPECT_TRUE(RmsNormForward(context, {.x = in,
                                                 .w = w.data(),
                                                 .y = y.data(),
                                                 .rstd = rstd.data(),
                                                 .rows = rows,
                                                 .cols = cols,
                                                 .eps = kEps})
                            .ok());
            Floats dx = place == Place::kIn ? dy : dx0;
            Floats dw = dw0;
            EXPECT_TRUE(RmsNormBackward(context, {.dy = place == Place::kIn ? dx.data() : dy.data(),
                                                  .x = x.data(),
                                                  .w = w.data(),
                                                  .rstd = rstd.data(),
                                                  .dx = dx.data(),
                                                  .dx_mode = mode,
                                                  .dw = dw.data(),
                                                  .dw_mode = mode,
                                                  .rows = rows,
                                                  .cols = cols})
                            .ok());
            return std::vector<Floats>{y, rstd, dx, dw};
          },
      .expected =
          [=] {
            const auto forward = reference::RmsNorm(ToDoubles(x), ToDoubles(w), rows, cols, kEps);
            auto g = reference::RmsNormBackward(ToDoubles(dy), ToDoubles(x), ToDoubles(w), rows,
                                                cols, kEps);
            if (add) g = {Sum(g.dx, dx0), Sum(g.dw, dw0)};
            return std::vector<reference::Doubles>{forward.y, forward.rstd, g.dx, g.dw};
          },
      .tolerance = 5e-7};
}

// Views with gaps of `gap` elements after the heads; the gaps must survive.
ParityCase Head(int64_t rows, int64_t heads, int64_t dim, int64_t gap, Place place,
                WriteMode dw_mode) {
  const int64_t width = heads * dim;
  const int64_t stride = width + gap;
  const Floats x = Random(rows * stride, 1, 3.0f);
  const Floats w = Random(dim, 2);
  const Floats dy = Random(rows * stride, 3);
  const bool add = dw_mode == WriteMode::kAdd;
  const Floats dw0 = add ? Random(dim, 5) : Poisoned(dim);
  return {
      .name =
          absl::StrCat("HeadNorm", add ? "Add" : "Overwrite", place == Place::kIn ? "InPlace" : "",
                       rows, "x", heads, "x", dim, "gap", gap),
      .run =
          [=](const cpu::Context& context) {
            const bool in_place = place == Place::kIn;
            Floats y = x;
            Floats raw = Poisoned(rows * width);
            Floats rstd = Poisoned(rows * heads);
            EXPECT_TRUE(HeadNormForward(context, {.x = y.data(),
                                                  .x_stride = stride,
                                                  .raw = raw.data(),
                                                  .raw_stride = width,
                                                  .w = w.data(),
                                                  .rstd = rstd.data(),
                                                  .rows = rows,
                                                  .heads = heads,
                                                  .head_dim = dim,
                                                  .eps = kEps})
                            .ok());
            Floats dx = in_place ? dy : Poisoned(rows * stride);
            Floats dw = dw0;
            EXPECT_TRUE(HeadNormBackward(context, {.dy = in_place ? dx.data() : dy.data(),
                                                   .dy_stride = stride,
                                                   .x = raw.data(),
                                                   .x_stride = width,
                                                   .w = w.data(),
                                                   .rstd = rstd.data(),
                                                   .dx = dx.data(),
                                                   .dx_stride = stride,
                                                   .dw = dw.data(),
                                                   .dw_mode = dw_mode,
                                                   .rows = rows,
                                                   .heads = heads,
                                                   .head_dim = dim})
                            .ok());
            EXPECT_EQ(raw, Columns(x, rows, stride, 0, width));
            EXPECT_EQ(Columns(y, rows, stride, width, gap), Columns(x, rows, stride, width, gap));
            return std::vector<Floats>{Columns(y, rows, stride, 0, width), rstd,
                                       Columns(dx, rows, stride, 0, width), dw};
          },
      .expected =
          [=] {
            const auto flat_x = ToDoubles(Columns(x, rows, stride, 0, width));
            const auto flat_dy = ToDoubles(Columns(dy, rows, stride, 0, width));
            const auto forward = reference::RmsNorm(flat_x, ToDoubles(w), rows * heads, dim, kEps);
            auto g =
                reference::RmsNormBackward(flat_dy, flat_x, ToDoubles(w), rows * heads, dim, kEps);
            if (add) g.dw = Sum(g.dw, dw0);
            return std::vector<reference::Doubles>{forward.y, forward.rstd, g.dx, g.dw};
          },
      .tolerance = 5e-7};
}

}  // namespace

std::vector<ParityCase> NormCases() {
  std::vector<ParityCase> cases;
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 8}, {1, 1}, {3, 7}, {65, 33}, {700, 64}, {5, 1000}, {130, 257}}) {
    cases.push_back(Rms(rows, cols, Place::kOut, WriteMode::kOverwrite));
    cases.push_back(Rms(rows, cols, Place::kOut, WriteMode::kAdd));
    cases.push_back(Rms(rows, cols, Place::kIn, WriteMode::kOverwrite));
  }
  for (const int64_t gap : {0, 5}) {
    for (const auto& [rows, heads, dim] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
             {0, 2, 8}, {1, 1, 2}, {7, 3, 10}, {300, 4, 64}, {33, 2, 48}}) {
      cases.push_back(Head(rows, heads, dim, gap, Place::kOut, WriteMode::kOverwrite));
      cases.push_back(Head(rows, heads, dim, gap, Place::kIn, WriteMode::kAdd));
    }
  }
  return cases;
}

}  // namespace penstock
