// SwiGLU: the gated activation of the MLP.
//   forward    y = silu(gate) * up,  silu(g) = g * sigmoid(g)
//   backward   d_gate = dy * up * sigmoid(g) * (1 + g * (1 - sigmoid(g)))
//              d_up   = dy * silu(g)
//              product = y, the bits that forward gave: so that nobody needs to keep it
// Shapes    gate_up, d_gate_up [rows, 2 * intermediate]: the gate in the first `intermediate`
//           columns, up in the rest; y, dy, product [rows, intermediate].
// Numerics  f32; exp within 2 ulp.
// Aliasing  d_gate_up may be gate_up, and product may be dy.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/kernels/context.h"

namespace penstock {

template <typename T>
struct SwigluForwardArgs {
  const T* gate_up;
  T* y;
  int64_t rows, intermediate;
};

template <typename T>
struct SwigluBackwardArgs {
  const T* gate_up;
  const T* dy;
  T* product;
  T* d_gate_up;
  int64_t rows, intermediate;
};

absl::Status SwigluForward(const cpu::Context& context, const SwigluForwardArgs<float>& args);
absl::Status SwigluBackward(const cpu::Context& context, const SwigluBackwardArgs<float>& args);

absl::Status SwigluForward(const cuda::Context& context, const SwigluForwardArgs<bf16>& args);
absl::Status SwigluBackward(const cuda::Context& context, const SwigluBackwardArgs<bf16>& args);

}  // namespace penstock
