// Every op again in float64, written for reading: loops in the order of the formulas. The ops
// are held to these, and the gradients here to finite differences (reference_test.cc).
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::reference {

using Doubles = std::vector<double>;

// y = x w^T + bias + residual; empty bias or residual for none.
Doubles Linear(const Doubles& x, const Doubles& w, const Doubles& bias, const Doubles& residual,
               int64_t rows, int64_t in, int64_t out);
struct LinearGradients {
  Doubles dx, dw, dbias;
};
LinearGradients LinearBackward(const Doubles& dy, const Doubles& x, const Doubles& w, int64_t rows,
                               int64_t in, int64_t out);

struct NormOutput {
  Doubles y, rstd;
};
// The norm of heads is the same with rows * heads for rows.
NormOutput RmsNorm(const Doubles& x, const Doubles& w, int64_t rows, int64_t cols, double eps);
struct NormGradients {
  Doubles dx, dw;
};
NormGradients RmsNormBackward(const Doubles& dy, const Doubles& x, const Doubles& w, int64_t rows,
                              int64_t cols, double eps);

// x [rows, heads, head_dim]; angle = position * frequency; sign -1 for the backward op.
Doubles Rope(const Doubles& x, const std::vector<int32_t>& positions, const Doubles& frequencies,
             int64_t heads, int64_t head_dim, double sign);

struct AttentionShape {
  std::vector<int32_t> starts;
  int64_t heads, kv_heads, head_dim, window;
  double scale;
  int64_t rows() const { return starts.back(); }
};
struct AttentionOutput {
  Doubles out, lse;
};
// q [rows, heads, head_dim]; k, v [rows, kv_heads, head_dim].
AttentionOutput Attention(const AttentionShape& shape, const Doubles& q, const Doubles& k,
                          const Doubles& v);
struct AttentionGradients {
  Doubles dq, dk, dv;
};
AttentionGradients AttentionBackward(const AttentionShape& shape, const Doubles& q,
                                     const Doubles& k, const Doubles& v, const Doubles& dout);

Doubles Swiglu(const Doubles& gate_up, int64_t rows, int64_t intermediate);
Doubles SwigluBackward(const Doubles& gate_up, const Doubles& dy, int64_t rows,
                       int64_t intermediate);

struct LossOutput {
  double loss_sum = 0;
  Doubles gradient;
};
LossOutput CrossEntropy(const Doubles& logits, const std::vector<int32_t>& labels, int64_t vocab,
                        double scale);

}  // namespace penstock::reference
