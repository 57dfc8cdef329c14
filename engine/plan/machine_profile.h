// What a machine can do, as far as the time of a step depends on it. Rates are sustained ones, with
// the rest of a step going on: a link that shares host memory with the optimizer is slower than
// one alone.
#pragma once

namespace penstock {

struct MachineProfile {
  double matmul_flops = 0;              // bf16, fp32 accumulation
  double attention_forward_flops = 0;   // causal, at the lengths of documents that are packed
  double attention_backward_flops = 0;  // likewise
  double device_bytes = 0;              // memory-bound kernels, read and written
  double copy_in_bytes = 0;             // host to device
  double copy_out_bytes = 0;            // device to host
  double adamw_parameters = 0;          // the host's optimizer, while copies run
  double op_seconds = 0;                // what an op costs beside its work
};                                      // all per second, but the last

// One H100 80GB SXM with 16 cores of its host, fitted to the timelines in bench/results/.
constexpr MachineProfile H100Profile() {
  return {.matmul_flops = 700e12,
          .attention_forward_flops = 390e12,
          .attention_backward_flops = 250e12,
          .device_bytes = 2.6e12,
          .copy_in_bytes = 40e9,
          .copy_out_bytes = 54e9,
          .adamw_parameters = 5.3e9,
          .op_seconds = 20e-6};
}

}  // namespace penstock
