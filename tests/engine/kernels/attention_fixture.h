// Runs attention on fused activations, as a decoder block does: q, k, v are columns of one
// array and so are their gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kernels/context.h"
#include "tests/engine/kernels/parity.h"
#include "tests/engine/kernels/reference.h"

namespace penstock {

struct AttentionInputs {
  reference::AttentionShape shape;
  Floats qkv;   // [rows, (heads + 2 kv_heads) * head_dim]
  Floats dout;  // [rows, heads * head_dim]

  int64_t q_size() const { return shape.heads * shape.head_dim; }
  int64_t kv_size() const { return shape.kv_heads * shape.head_dim; }
  int64_t stride() const { return q_size() + 2 * kv_size(); }
  Floats q() const { return Columns(qkv, shape.rows(), stride(), 0, q_size()); }
  Floats k() const { return Columns(qkv, shape.rows(), stride(), q_size(), kv_size()); }
  Floats v() const { return Columns(qkv, shape.rows(), stride(), q_size() + kv_size(), kv_size()); }
};

struct AttentionResults {
  Floats out, lse, dqkv;
};

AttentionInputs RandomAttention(const reference::AttentionShape& shape, uint32_t seed);

// Forward and backward into poisoned outputs, with poisoned scratch of the least allowed size.
AttentionResults RunAttention(const cpu::Context& context, const AttentionInputs& inputs);

}  // namespace penstock
