#include "absl/strings/str_cat.h"
#include "engine/kernels/column_sum_cuda.h"
#include "engine/kernels/head_norm.h"
#include "engine/kernels/rmsnorm.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/cuda_parity.h"

namespace penstock {
namespace {

constexpr float kEps = 1e-5f;

// In place: y is x, dx is dy.
enum class Place { kOut, kIn };

reference::Doubles Sum(reference::Doubles a, const Floats& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

CudaCase Rms(int64_t rows, int64_t cols, Place place, WriteMode mode) {
  const Floats x = RandomBf16(rows * cols, 1, 3.0f);
  const Floats w = RandomBf16(cols, 2);
  const Floats dy = RandomBf16(rows * cols, 3);
  const bool add = mode == WriteMode::kAdd;
  const bool in_place = place == Place::kIn;
  const Floats dx0 = add ? RandomBf16(rows * cols, 4) : Poisoned(rows * cols);
  const Floats dw0 = add ? Random(cols, 5) : Poisoned(cols);
  return {
      .name = absl::StrCat("RmsNorm", add ? "Add" : "Overwrite", in_place ? "InPlace" : "", rows,
                           "x", cols),
      .run =
          [=](const cuda::Context& context) {
            const DeviceBf16 device_x(x), device_w(w), device_dy(dy);
            const DeviceBf16 y(in_place ? x : Poisoned(rows * cols)), dx(in_place ? dy : dx0);
            const DeviceFloats rstd(Poisoned(rows)), dw(dw0);
            EXPECT_TRUE(RmsNormForward(context, {.x = in_place ? y.data() : device_x.data(),
                                                 .w = device_w.data(),
                                                 .y = y.data(),
                                                 .rstd = rstd.data(),
                                                 .rows = rows,
                                                 .cols = cols,
                                                 .eps = kEps})
                            .ok());
            EXPECT_TRUE(RmsNormBackward(context, {.dy = in_place ? dx.data() : device_dy.data(),
                                                  .x = device_x.data(),
                                                  .w = device_w.data(),
                                                  .rstd = rstd.data(),
                                                  .dx = dx.data(),
                                                  .dx_mode = mode,
                                                  .dw = dw.data(),
                                                  .dw_mode = mode,
                                                  .rows = rows,
                                                  .cols = cols})
                            .ok());
            return std::vector<Floats>{y.Download(), rstd.Download(), dx.Download(), dw.Download()};
          },
      .expected =
          [=] {
            const auto forward = reference::RmsNorm(ToDoubles(x), ToDoubles(w), rows, cols, kEps);
            auto g = reference::RmsNormBackward(ToDoubles(dy), ToDoubles(x), ToDoubles(w), rows,
                                                cols, kEps);
            if (add) g = {Sum(g.dx, dx0), Sum(g.dw, dw0)};
            return std::vector<reference::Doubles>{forward.y, forward.rstd, g.dx, g.dw};
          },
      .tolerances = {kBf16Bound, kFloatBound, kBf16Bound, kFloatBound}};
}

// Views with gaps of `gap` elements after the heads; the gaps must survive.
CudaCase Head(int64_t rows, int64_t heads, int64_t dim, int64_t gap, Place place,
              WriteMode dw_mode) {
  const int64_t width = heads * dim;
  const int64_t stride = width + gap;
  const Floats x = RandomBf16(rows * stride, 1, 3.0f);
  const Floats w = RandomBf16(dim, 2);
  const Floats dy = RandomBf16(rows * stride, 3);
  const bool add = dw_mode == WriteMode::kAdd;
  const bool in_place = place == Place::kIn;
  const Floats dw0 = add ? Random(dim, 5) : Poisoned(dim);
  return {
      .name = absl::StrCat("HeadNorm", add ? "Add" : "Overwrite", in_place ? "InPlace" : "", rows,
                           "x", heads, "x", dim, "gap", gap),
      .run =
          [=](const cuda::Context& context) {
            const DeviceBf16 y(x), raw(Poisoned(rows * width)), device_w(w), device_dy(dy);
            const DeviceBf16 dx(in_place ? dy : Poisoned(rows * stride));
            const DeviceFloats rstd(Poisoned(rows * heads)), dw(dw0);
            EXPECT_TRUE(HeadNormForward(context, {.x = y.data(),
                                                  .x_stride = stride,
                                                  .raw = raw.data(),
                                                  .raw_stride = width,
                                                  .w = device_w.data(),
                                                  .rstd = rstd.data(),
                                                  .rows = rows,
                                                  .heads = heads,
                                                  .head_dim = dim,
                                                  .eps = kEps})
                            .ok());
            EXPECT_TRUE(HeadNormBackward(context, {.dy = in_place ? dx.data() : device_dy.data(),
                                                   .dy_stride = stride,
                                                   .x = raw.data(),
                                                   .x_stride = width,
                                                   .w = device_w.data(),
                                                   .rstd = rstd.data(),
                                                   .dx = dx.data(),
                                                   .dx_stride = stride,
                                                   .dw = dw.data(),
                                                   .dw_mode = dw_mode,
                                                   .rows = rows,
                                                   .heads = heads,
                                                   .head_dim = dim})
                            .ok());
            const Floats all_y = y.Download(), all_dx = dx.Download();
            EXPECT_EQ(raw.Download(), Columns(x, rows, stride, 0, width));
            EXPECT_EQ(Columns(all_y, rows, stride, width, gap),
                      Columns(x, rows, stride, width, gap));
            return std::vector<Floats>{Columns(all_y, rows, stride, 0, width), rstd.Download(),
                                       Columns(all_dx, rows, stride, 0, width), dw.Download()};
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
      .tolerances = {kBf16Bound, kFloatBound, kBf16Bound, kFloatBound}};
}

// Without the products that it comes with in a linear layer, so that tools which cannot follow
// those can check it.
CudaCase ColumnSums(int64_t rows, int64_t cols, WriteMode mode) {
  const Floats x = RandomBf16(rows * cols, 1);
  const bool add = mode == WriteMode::kAdd;
  const Floats out0 = add ? Random(cols, 2) : Poisoned(cols);
  return {.name = absl::StrCat("ColumnSum", add ? "Add" : "Overwrite", rows, "x", cols),
          .run =
              [=](const cuda::Context& context) {
                const DeviceBf16 device_x(x);
                const DeviceFloats out(out0);
                EXPECT_TRUE(cuda::ColumnSum(context, "ColumnSum", device_x.data(), rows, cols, mode,
                                            out.data())
                                .ok());
                return std::vector<Floats>{out.Download()};
              },
          .expected =
              [=] {
                reference::Doubles sums(cols);
                for (int64_t i = 0; i < rows * cols; ++i) sums[i % cols] += x[i];
                return std::vector<reference::Doubles>{add ? Sum(sums, out0) : sums};
              },
          .tolerances = {kFloatBound}};
}

}  // namespace

std::vector<CudaCase> NormCudaCases() {
  std::vector<CudaCase> cases;
  for (WriteMode mode : {WriteMode::kOverwrite, WriteMode::kAdd}) {
    for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 8}, {1, 1}, {63, 264}, {65, 33}, {9000, 16}, {300, 4608}}) {
      cases.push_back(ColumnSums(rows, cols, mode));
    }
  }
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           // Rows of each length that the backward pass takes in another way, and more of them
           // than its blocks take at once.
           {0, 8},
           {1, 1},
           {3, 7},
           {65, 33},
           {700, 64},
           {5, 2048},
           {130, 257},
           {30000, 40},
           {40, 96},
           {4300, 264},
           {33, 1000},
           {800, 2056},
           {500, 4104},
           {3, 16384},
           {600, 1027},
           {2, 16392}}) {
    cases.push_back(Rms(rows, cols, Place::kOut, WriteMode::kOverwrite));
    cases.push_back(Rms(rows, cols, Place::kOut, WriteMode::kAdd));
    cases.push_back(Rms(rows, cols, Place::kIn, WriteMode::kOverwrite));
  }
  for (const int64_t gap : {0, 5}) {
    for (const auto& [rows, heads, dim] :
         std::vector<std::tuple<int64_t, int64_t, int64_t>>{{0, 2, 8},
                                                            {1, 1, 2},
                                                            {7, 3, 10},
                                                            {300, 4, 64},
                                                            {6000, 5, 64},
                                                            {21, 3, 320},
                                                            {33, 2, 128},
                                                            {40, 2, 160},
                                                            {21, 5, 192},
                                                            {9, 3, 256}}) {
      cases.push_back(Head(rows, heads, dim, gap, Place::kOut, WriteMode::kOverwrite));
      cases.push_back(Head(rows, heads, dim, gap, Place::kIn, WriteMode::kAdd));
    }
  }
  return cases;
}

}  // namespace penstock
