// Runs attention on fused activations, as a decoder block does: q, k, v are columns of one
// array and so are their gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kernels/attention.h"
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

// Where a backend has the arrays of a run: inputs and results as above, the results poisoned.
template <typename T>
struct AttentionArrays {
  const T* qkv;
  const T* dout;
  T* out;
  float* lse;
  T* dqkv;
  const int32_t* starts;
  void* scratch;
  int64_t scratch_bytes;
};

// What the arguments of both directions have in common.
template <typename T, typename Args>
void SetCommon(const AttentionInputs& inputs, const AttentionArrays<T>& arrays, Args& args) {
  const reference::AttentionShape& shape = inputs.shape;
  args.q = arrays.qkv;
  args.k = args.q + inputs.q_size();
  args.v = args.k + inputs.kv_size();
  args.q_stride = args.k_stride = args.v_stride = inputs.stride();
  args.out = arrays.out;
  args.lse = arrays.lse;
  args.document_starts = arrays.starts;
  args.num_documents = static_cast<int64_t>(shape.starts.size()) - 1;
  args.rows = shape.rows();
  args.num_heads = shape.heads;
  args.num_kv_heads = shape.kv_heads;
  args.head_dim = shape.head_dim;
  args.scale = static_cast<float>(shape.scale);
  args.window = shape.window;
  args.scratch = arrays.scratch;
  args.scratch_bytes = arrays.scratch_bytes;
  args.host_document_starts = shape.starts.data();
}

template <typename T>
AttentionForwardArgs<T> ForwardArgs(const AttentionInputs& inputs,
                                    const AttentionArrays<T>& arrays) {
  AttentionForwardArgs<T> args{};
  SetCommon(inputs, arrays, args);
  return args;
}

template <typename T>
AttentionBackwardArgs<T> BackwardArgs(const AttentionInputs& inputs,
                                      const AttentionArrays<T>& arrays) {
  AttentionBackwardArgs<T> args{};
  SetCommon(inputs, arrays, args);
  args.dout = arrays.dout;
  args.dq = arrays.dqkv;
  args.dk = args.dq + inputs.q_size();
  args.dv = args.dk + inputs.kv_size();
  args.dq_stride = args.dk_stride = args.dv_stride = inputs.stride();
  return args;
}

AttentionInputs RandomAttention(const reference::AttentionShape& shape, uint32_t seed);

// Forward and backward into poisoned outputs, with poisoned scratch of the least allowed size.
AttentionResults RunAttention(const cpu::Context& context, const AttentionInputs& inputs);

}  // namespace penstock
