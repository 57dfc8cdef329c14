// Holds the gradients of reference.h to central differences of its forward functions.
#include "tests/engine/kernels/reference.h"

#include <cmath>
#include <functional>

#include "gtest/gtest.h"
#include "tests/engine/kernels/parity.h"

namespace penstock::reference {
namespace {

// loss(x) must be a scalar; `gradient` is what is claimed for d loss / d x.
void ExpectGradient(const std::function<double(const Doubles&)>& loss, Doubles x,
                    const Doubles& gradient) {
  ASSERT_EQ(x.size(), gradient.size());
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < x.size(); ++i) {
    const double old = x[i];
    x[i] = old + kStep;
    const double above = loss(x);
    x[i] = old - kStep;
    const double below = loss(x);
    x[i] = old;
    ASSERT_NEAR((above - below) / (2 * kStep), gradient[i], 1e-7) << "element " << i;
  }
}

Doubles RandomDoubles(int64_t count, uint32_t seed) { return ToDoubles(Random(count, seed)); }

double Dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

TEST(ReferenceTest, LinearGradients) {
  const int64_t rows = 3, in = 5, out = 4;
  const Doubles x = RandomDoubles(rows * in, 1), w = RandomDoubles(out * in, 2),
                bias = RandomDoubles(out, 3), dy = RandomDoubles(rows * out, 4);
  const LinearGradients g = LinearBackward(dy, x, w, rows, in, out);
  const auto loss = [&](const Doubles& x, const Doubles& w, const Doubles& bias) {
    return Dot(dy, Linear(x, w, bias, {}, rows, in, out));
  };
  ExpectGradient([&](const Doubles& v) { return loss(v, w, bias); }, x, g.dx);
  ExpectGradient([&](const Doubles& v) { return loss(x, v, bias); }, w, g.dw);
  ExpectGradient([&](const Doubles& v) { return loss(x, w, v); }, bias, g.dbias);
}

TEST(ReferenceTest, RmsNormGradients) {
  const int64_t rows = 3, cols = 7;
  const Doubles x = RandomDoubles(rows * cols, 1), w = RandomDoubles(cols, 2),
                dy = RandomDoubles(rows * cols, 3);
  const NormGradients g = RmsNormBackward(dy, x, w, rows, cols, 0.1);
  const auto loss = [&](const Doubles& x, const Doubles& w) {
    return Dot(dy, RmsNorm(x, w, rows, cols, 0.1).y);
  };
  ExpectGradient([&](const Doubles& v) { return loss(v, w); }, x, g.dx);
  ExpectGradient([&](const Doubles& v) { return loss(x, v); }, w, g.dw);
}

TEST(ReferenceTest, RopeGradientIsTheInverseRotation) {
  const std::vector<int32_t> positions = {0, 1, 17};
  const Doubles frequencies = {1.0, 0.1};
  const Doubles x = RandomDoubles(3 * 2 * 4, 1), dy = RandomDoubles(3 * 2 * 4, 2);
  ExpectGradient(
      [&](const Doubles& v) { return Dot(dy, Rope(v, positions, frequencies, 2, 4, 1)); }, x,
      Rope(dy, positions, frequencies, 2, 4, -1));
}

TEST(ReferenceTest, AttentionGradients) {
  for (const int64_t window : {0, 2}) {
    const AttentionShape shape{.starts = {0, 5, 5, 7},
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 3,
                               .window = window,
                               .scale = 0.7};
    const Doubles q = RandomDoubles(7 * 4 * 3, 1), k = RandomDoubles(7 * 2 * 3, 2),
                  v = RandomDoubles(7 * 2 * 3, 3), dout = RandomDoubles(7 * 4 * 3, 4);
    const AttentionGradients g = AttentionBackward(shape, q, k, v, dout);
    const auto loss = [&](const Doubles& q, const Doubles& k, const Doubles& v) {
      return Dot(dout, Attention(shape, q, k, v).out);
    };
    ExpectGradient([&](const Doubles& x) { return loss(x, k, v); }, q, g.dq);
    ExpectGradient([&](const Doubles& x) { return loss(q, x, v); }, k, g.dk);
    ExpectGradient([&](const Doubles& x) { return loss(q, k, x); }, v, g.dv);
  }
}

TEST(ReferenceTest, SwigluGradients) {
  const Doubles gate_up = RandomDoubles(3 * 2 * 5, 1), dy = RandomDoubles(3 * 5, 2);
  ExpectGradient([&](const Doubles& v) { return Dot(dy, Swiglu(v, 3, 5)); }, gate_up,
                 SwigluBackward(gate_up, dy, 3, 5));
}

TEST(ReferenceTest, CrossEntropyGradients) {
  const Doubles logits = RandomDoubles(4 * 6, 1);
  const std::vector<int32_t> labels = {2, -1, 0, 5};
  ExpectGradient([&](const Doubles& v) { return 0.25 * CrossEntropy(v, labels, 6, 0.25).loss_sum; },
                 logits, CrossEntropy(logits, labels, 6, 0.25).gradient);
}

}  // namespace
}  // namespace penstock::reference
