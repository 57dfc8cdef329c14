#include "absl/strings/str_cat.h"
#include "engine/kernels/linear.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/parity.h"

namespace penstock {
namespace {

struct Shape {
  int64_t rows, in, out;
  std::string name() const { return absl::StrCat(rows, "x", in, "x", out); }
};

// Around the panels of 256, below them, and empty.
constexpr Shape kShapes[] = {{0, 5, 3},      {1, 1, 1},       {3, 5, 7},       {7, 130, 3},
                             {64, 64, 64},   {255, 33, 257},  {256, 256, 256}, {257, 65, 511},
                             {513, 300, 40}, {2, 1000, 1030}, {300, 7, 1}};

enum class Extra { kNone, kBias, kResidual, kBoth, kResidualInPlace };
constexpr std::pair<Extra, const char*> kExtras[] = {{Extra::kNone, "Plain"},
                                                     {Extra::kBias, "Bias"},
                                                     {Extra::kResidual, "Residual"},
                                                     {Extra::kBoth, "BiasAndResidual"},
                                                     {Extra::kResidualInPlace, "InPlaceResidual"}};

ParityCase Forward(const Shape& shape, Extra extra, const char* extra_name) {
  const Floats x = Random(shape.rows * shape.in, 1);
  const Floats w = Random(shape.out * shape.in, 2);
  const bool has_bias = extra == Extra::kBias || extra == Extra::kBoth;
  const bool has_residual = extra != Extra::kNone && extra != Extra::kBias;
  const Floats bias = has_bias ? Random(shape.out, 3) : Floats();
  const Floats residual = has_residual ? Random(shape.rows * shape.out, 4) : Floats();
  return {.name = absl::StrCat("LinearForward", extra_name, shape.name()),
          .run =
              [=](const cpu::Context& context) {
                const bool in_place = extra == Extra::kResidualInPlace;
                Floats y = in_place ? residual : Poisoned(shape.rows * shape.out);
                const float* from = in_place ? y.data() : residual.data();
                EXPECT_TRUE(LinearForward(context, {.x = x.data(),
                                                    .w = w.data(),
                                                    .bias = has_bias ? bias.data() : nullptr,
                                                    .residual = has_residual ? from : nullptr,
                                                    .y = y.data(),
                                                    .rows = shape.rows,
                                                    .in = shape.in,
                                                    .out = shape.out})
                                .ok());
                return std::vector<Floats>{y};
              },
          .expected =
              [=] {
                return std::vector<reference::Doubles>{
                    reference::Linear(ToDoubles(x), ToDoubles(w), ToDoubles(bias),
                                      ToDoubles(residual), shape.rows, shape.in, shape.out)};
              },
          .tolerance = 3e-6};
}

reference::Doubles Sum(reference::Doubles a, const Floats& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

ParityCase Backward(const Shape& shape, WriteMode mode) {
  const Floats x = Random(shape.rows * shape.in, 5);
  const Floats w = Random(shape.out * shape.in, 6);
  const Floats dy = Random(shape.rows * shape.out, 7);
  const bool add = mode == WriteMode::kAdd;
  const Floats dx0 = add ? Random(x.size(), 8) : Poisoned(x.size());
  const Floats dw0 = add ? Random(w.size(), 9) : Poisoned(w.size());
  const Floats db0 = add ? Random(shape.out, 10) : Poisoned(shape.out);
  return {.name = absl::StrCat("LinearBackward", add ? "Add" : "Overwrite", shape.name()),
          .run =
              [=](const cpu::Context& context) {
                Floats dx = dx0, dw = dw0, dbias = db0;
                EXPECT_TRUE(LinearBackwardInput(context, {.dy = dy.data(),
                                                          .w = w.data(),
                                                          .dx = dx.data(),
                                                          .rows = shape.rows,
                                                          .in = shape.in,
                                                          .out = shape.out,
                                                          .mode = mode})
                                .ok());
                EXPECT_TRUE(LinearBackwardWeight(context, {.dy = dy.data(),
                                                           .x = x.data(),
                                                           .dw = dw.data(),
                                                           .dbias = dbias.data(),
                                                           .rows = shape.rows,
                                                           .in = shape.in,
                                                           .out = shape.out,
                                                           .mode = mode})
                                .ok());
                return std::vector<Floats>{dx, dw, dbias};
              },
          .expected =
              [=] {
                const auto g = reference::LinearBackward(ToDoubles(dy), ToDoubles(x), ToDoubles(w),
                                                         shape.rows, shape.in, shape.out);
                if (!add) return std::vector<reference::Doubles>{g.dx, g.dw, g.dbias};
                return std::vector<reference::Doubles>{Sum(g.dx, dx0), Sum(g.dw, dw0),
                                                       Sum(g.dbias, db0)};
              },
          .tolerance = 3e-6};
}

}  // namespace

std::vector<ParityCase> LinearCases() {
  std::vector<ParityCase> cases;
  for (const Shape& shape : kShapes) {
    for (const auto& [extra, name] : kExtras) cases.push_back(Forward(shape, extra, name));
    cases.push_back(Backward(shape, WriteMode::kOverwrite));
    cases.push_back(Backward(shape, WriteMode::kAdd));
  }
  return cases;
}

}  // namespace penstock
