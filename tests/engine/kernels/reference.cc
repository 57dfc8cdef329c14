#include "tests/engine/kernels/reference.h"

#include <algorithm>
#include <cmath>

namespace penstock::reference {

Doubles Linear(const Doubles& x, const Doubles& w, const Doubles& bias, const Doubles& residual,
               int64_t rows, int64_t in, int64_t out) {
  Doubles y(rows * out, 0.0);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0.0 : bias[o];
      if (!residual.empty()) sum += residual[r * out + o];
      for (int64_t i = 0; i < in; ++i) sum += x[r * in + i] * w[o * in + i];
      y[r * out + o] = sum;
    }
  }
  return y;
}

LinearGradients LinearBackward(const Doubles& dy, const Doubles& x, const Doubles& w, int64_t rows,
                               int64_t in, int64_t out) {
  LinearGradients g{Doubles(rows * in), Doubles(out * in), Doubles(out)};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      g.dbias[o] += dy[r * out + o];
      for (int64_t i = 0; i < in; ++i) {
        g.dx[r * in + i] += dy[r * out + o] * w[o * in + i];
        g.dw[o * in + i] += dy[r * out + o] * x[r * in + i];
      }
    }
  }
  return g;
}

NormOutput RmsNorm(const Doubles& x, const Doubles& w, int64_t rows, int64_t cols, double eps) {
  NormOutput output{Doubles(rows * cols), Doubles(rows)};
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += x[r * cols + c] * x[r * cols + c];
    output.rstd[r] = 1 / std::sqrt(sum / cols + eps);
    for (int64_t c = 0; c < cols; ++c) {
      output.y[r * cols + c] = x[r * cols + c] * output.rstd[r] * w[c];
    }
  }
  return output;
}

NormGradients RmsNormBackward(const Doubles& dy, const Doubles& x, const Doubles& w, int64_t rows,
                              int64_t cols, double eps) {
  const Doubles rstd = RmsNorm(x, w, rows, cols, eps).rstd;
  NormGradients g{Doubles(rows * cols), Doubles(cols)};
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const double n = x[r * cols + c] * rstd[r];
      mean += dy[r * cols + c] * w[c] * n / cols;
      g.dw[c] += dy[r * cols + c] * n;
    }
    for (int64_t c = 0; c < cols; ++c) {
      const double n = x[r * cols + c] * rstd[r];
      g.dx[r * cols + c] = rstd[r] * (dy[r * cols + c] * w[c] - n * mean);
    }
  }
  return g;
}

Doubles Rope(const Doubles& x, const std::vector<int32_t>& positions, const Doubles& frequencies,
             int64_t heads, int64_t head_dim, double sign) {
  Doubles y(x.size());
  const int64_t half = head_dim / 2;
  for (int64_t r = 0; r < static_cast<int64_t>(positions.size()); ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = sign * positions[r] * frequencies[i];
        const int64_t a = (r * heads + h) * head_dim + i;
        const int64_t b = a + half;
        y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
        y[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
      }
    }
  }
  return y;
}

namespace {

// Calls visit(q, first key, last key + 1) for each row.
template <typename Visit>
void ForEachQuery(const AttentionShape& shape, Visit visit) {
  for (size_t d = 0; d + 1 < shape.starts.size(); ++d) {
    for (int64_t q = shape.starts[d]; q < shape.starts[d + 1]; ++q) {
      int64_t first = shape.starts[d];
      if (shape.window > 0) first = std::max(first, q - shape.window + 1);
      visit(q, first, q + 1);
    }
  }
}

double Dot(const Doubles& a, int64_t a_offset, const Doubles& b, int64_t b_offset, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[a_offset + i] * b[b_offset + i];
  return sum;
}

}  // namespace

AttentionOutput Attention(const AttentionShape& shape, const Doubles& q, const Doubles& k,
                          const Doubles& v) {
  const int64_t dim = shape.head_dim;
  const int64_t group = shape.heads / shape.kv_heads;
  AttentionOutput output{Doubles(shape.rows() * shape.heads * dim),
                         Doubles(shape.rows() * shape.heads)};
  ForEachQuery(shape, [&](int64_t row, int64_t first, int64_t end) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const int64_t q_offset = (row * shape.heads + h) * dim;
      Doubles s;
      for (int64_t key = first; key < end; ++key) {
        const int64_t k_offset = (key * shape.kv_heads + h / group) * dim;
        s.push_back(shape.scale * Dot(q, q_offset, k, k_offset, dim));
      }
      const double max = *std::max_element(s.begin(), s.end());
      double sum = 0;
      for (const double score : s) sum += std::exp(score - max);
      output.lse[row * shape.heads + h] = max + std::log(sum);
      for (int64_t key = first; key < end; ++key) {
        const double p = std::exp(s[key - first] - max) / sum;
        for (int64_t i = 0; i < dim; ++i) {
          output.out[q_offset + i] += p * v[(key * shape.kv_heads + h / group) * dim + i];
        }
      }
    }
  });
  return output;
}

AttentionGradients AttentionBackward(const AttentionShape& shape, const Doubles& q,
                                     const Doubles& k, const Doubles& v, const Doubles& dout) {
  const int64_t dim = shape.head_dim;
  const int64_t group = shape.heads / shape.kv_heads;
  const AttentionOutput forward = Attention(shape, q, k, v);
  AttentionGradients g{Doubles(q.size()), Doubles(k.size()), Doubles(v.size())};
  ForEachQuery(shape, [&](int64_t row, int64_t first, int64_t end) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const int64_t q_offset = (row * shape.heads + h) * dim;
      const double delta = Dot(dout, q_offset, forward.out, q_offset, dim);
      for (int64_t key = first; key < end; ++key) {
        const int64_t k_offset = (key * shape.kv_heads + h / group) * dim;
        const double score = shape.scale * Dot(q, q_offset, k, k_offset, dim);
        const double p = std::exp(score - forward.lse[row * shape.heads + h]);
        const double ds = p * (Dot(dout, q_offset, v, k_offset, dim) - delta) * shape.scale;
        for (int64_t i = 0; i < dim; ++i) {
          g.dq[q_offset + i] += ds * k[k_offset + i];
          g.dk[k_offset + i] += ds * q[q_offset + i];
          g.dv[k_offset + i] += p * dout[q_offset + i];
        }
      }
    }
  });
  return g;
}

Doubles Swiglu(const Doubles& gate_up, int64_t rows, int64_t intermediate) {
  Doubles y(rows * intermediate);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < intermediate; ++i) {
      const double gate = gate_up[r * 2 * intermediate + i];
      const double up = gate_up[r * 2 * intermediate + intermediate + i];
      y[r * intermediate + i] = gate / (1 + std::exp(-gate)) * up;
    }
  }
  return y;
}

Doubles SwigluBackward(const Doubles& gate_up, const Doubles& dy, int64_t rows,
                       int64_t intermediate) {
  Doubles d(gate_up.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < intermediate; ++i) {
      const int64_t at = r * 2 * intermediate + i;
      const double gate = gate_up[at];
      const double sigmoid = 1 / (1 + std::exp(-gate));
      const double up = gate_up[at + intermediate];
      d[at] = dy[r * intermediate + i] * up * sigmoid * (1 + gate * (1 - sigmoid));
      d[at + intermediate] = dy[r * intermediate + i] * gate * sigmoid;
    }
  }
  return d;
}

LossOutput CrossEntropy(const Doubles& logits, const std::vector<int32_t>& labels, int64_t vocab,
                        double scale) {
  LossOutput output{0.0, Doubles(logits.size())};
  for (size_t r = 0; r < labels.size(); ++r) {
    if (labels[r] < 0) continue;
    const auto row = logits.begin() + r * vocab;
    const double max = *std::max_element(row, row + vocab);
    double sum = 0;
    for (int64_t c = 0; c < vocab; ++c) sum += std::exp(row[c] - max);
    output.loss_sum += max + std::log(sum) - row[labels[r]];
    for (int64_t c = 0; c < vocab; ++c) {
      const double p = std::exp(row[c] - max) / sum;
      output.gradient[r * vocab + c] = scale * (p - (c == labels[r] ? 1.0 : 0.0));
    }
  }
  return output;
}

}  // namespace penstock::reference
