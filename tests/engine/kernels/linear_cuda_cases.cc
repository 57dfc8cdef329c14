#include "absl/strings/str_cat.h"
#include "engine/kernels/linear.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/cuda_parity.h"

namespace penstock {
namespace {

struct Shape {
  int64_t rows, in, out;
  std::string name() const { return absl::StrCat(rows, "x", in, "x", out); }
};

// Odd sizes break the alignment that tensor cores like. The last two have so many tiles, of the
// output and of the weight's gradient, that large ones are chosen.
constexpr Shape kShapes[] = {{0, 8, 16},       {1, 1, 1},       {3, 5, 7},      {7, 130, 3},
                             {64, 64, 64},     {257, 33, 65},   {96, 200, 136}, {300, 264, 520},
                             {4352, 16, 4096}, {16, 4096, 4352}};

enum class Extra { kNone, kBias, kResidual, kBoth, kResidualInPlace };
constexpr std::pair<Extra, const char*> kExtras[] = {{Extra::kNone, "Plain"},
                                                     {Extra::kBias, "Bias"},
                                                     {Extra::kResidual, "Residual"},
                                                     {Extra::kBoth, "BiasAndResidual"},
                                                     {Extra::kResidualInPlace, "InPlaceResidual"}};

CudaCase Forward(const Shape& shape, Extra extra, const char* extra_name) {
  const Floats x = RandomBf16(shape.rows * shape.in, 1);
  const Floats w = RandomBf16(shape.out * shape.in, 2);
  const bool has_bias = extra == Extra::kBias || extra == Extra::kBoth;
  const bool has_residual = extra != Extra::kNone && extra != Extra::kBias;
  const bool in_place = extra == Extra::kResidualInPlace;
  const Floats bias = has_bias ? RandomBf16(shape.out, 3) : Floats();
  const Floats residual = has_residual ? RandomBf16(shape.rows * shape.out, 4) : Floats();
  return {.name = absl::StrCat("LinearForward", extra_name, shape.name()),
          .run =
              [=](const cuda::Context& context) {
                const DeviceBf16 dx(x), dw(w), dbias(bias), dresidual(residual);
                const DeviceBf16 y(in_place ? residual : Poisoned(shape.rows * shape.out));
                const bf16* from = in_place ? y.data() : dresidual.data();
                const absl::Status status =
                    LinearForward(context, {.x = dx.data(),
                                            .w = dw.data(),
                                            .bias = has_bias ? dbias.data() : nullptr,
                                            .residual = has_residual ? from : nullptr,
                                            .y = y.data(),
                                            .rows = shape.rows,
                                            .in = shape.in,
                                            .out = shape.out});
                EXPECT_TRUE(status.ok()) << status;
                return std::vector<Floats>{y.Download()};
              },
          .expected =
              [=] {
                return std::vector<reference::Doubles>{
                    reference::Linear(ToDoubles(x), ToDoubles(w), ToDoubles(bias),
                                      ToDoubles(residual), shape.rows, shape.in, shape.out)};
              },
          .tolerances = {has_residual ? kBf16SumBound : kBf16Bound}};
}

reference::Doubles Sum(reference::Doubles a, const Floats& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

CudaCase Backward(const Shape& shape, WriteMode mode) {
  const Floats x = RandomBf16(shape.rows * shape.in, 5);
  const Floats w = RandomBf16(shape.out * shape.in, 6);
  const Floats dy = RandomBf16(shape.rows * shape.out, 7);
  const bool add = mode == WriteMode::kAdd;
  const Floats dx0 = add ? RandomBf16(x.size(), 8) : Poisoned(x.size());
  const Floats dw0 = add ? Random(w.size(), 9) : Poisoned(w.size());
  const Floats db0 = add ? Random(shape.out, 10) : Poisoned(shape.out);
  return {.name = absl::StrCat("LinearBackward", add ? "Add" : "Overwrite", shape.name()),
          .run =
              [=](const cuda::Context& context) {
                const DeviceBf16 device_x(x), device_w(w), device_dy(dy), dx(dx0);
                const DeviceFloats dw(dw0), dbias(db0);
                const absl::Status input = LinearBackwardInput(context, {.dy = device_dy.data(),
                                                                         .w = device_w.data(),
                                                                         .dx = dx.data(),
                                                                         .rows = shape.rows,
                                                                         .in = shape.in,
                                                                         .out = shape.out,
                                                                         .mode = mode});
                EXPECT_TRUE(input.ok()) << input;
                const absl::Status weight = LinearBackwardWeight(context, {.dy = device_dy.data(),
                                                                           .x = device_x.data(),
                                                                           .dw = dw.data(),
                                                                           .dbias = dbias.data(),
                                                                           .rows = shape.rows,
                                                                           .in = shape.in,
                                                                           .out = shape.out,
                                                                           .mode = mode});
                EXPECT_TRUE(weight.ok()) << weight;
                return std::vector<Floats>{dx.Download(), dw.Download(), dbias.Download()};
              },
          .expected =
              [=] {
                const auto g = reference::LinearBackward(ToDoubles(dy), ToDoubles(x), ToDoubles(w),
                                                         shape.rows, shape.in, shape.out);
                if (!add) return std::vector<reference::Doubles>{g.dx, g.dw, g.dbias};
                return std::vector<reference::Doubles>{Sum(g.dx, dx0), Sum(g.dw, dw0),
                                                       Sum(g.dbias, db0)};
              },
          .tolerances = {add ? kBf16SumBound : kBf16Bound, kFloatBound, kFloatBound}};
}

}  // namespace

std::vector<CudaCase> LinearCudaCases() {
  std::vector<CudaCase> cases;
  for (const Shape& shape : kShapes) {
    for (const auto& [extra, name] : kExtras) cases.push_back(Forward(shape, extra, name));
    cases.push_back(Backward(shape, WriteMode::kOverwrite));
    cases.push_back(Backward(shape, WriteMode::kAdd));
  }
  return cases;
}

}  // namespace penstock
