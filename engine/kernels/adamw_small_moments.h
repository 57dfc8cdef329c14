// AdamW (adamw.h) with moments that are kept in fewer bits than fp32, on the CPU. They are widened,
// the update is that of adamw.h, to the bit, with the new moments before they are rounded, and then
// they are rounded stochastically. Codes, rounding and where its random bits come from:
// moment_codes.h.
//
// Shapes    hi, lo, gradient [count]; m, v [count] of the type; scales [MomentBlocks(count)].
// Numerics  the same bits with every CpuIsa and any number of threads. A rounded moment is off by
//           at most one step between codes, with mean 0: 2^-7 of its value in bf16; in 8 bits 2^-3
//           of its value, if m is at least 2^-15 and v 2^-31 of the block's largest; a smaller m is
//           off by 1.125 * 2^-15 of that, and a smaller v becomes as large as that. Over many
//           steps, against float64 (root mean square, beta2 0.95 to 0.999): in bf16 m 0.6%, v 0.8
//           to 2% and the way that weights have gone 0.2 to 0.5%; in 8 bits m 9%, v 13 to 18% and
//           the way 3 to 6%. Their mean is 0.
// Needs     no alignment of the pointers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "engine/kernels/adamw.h"
#include "engine/kernels/context.h"
#include "engine/kernels/cpu_isa.h"
#include "engine/plan/moment_type.h"

namespace penstock {

// Which random bits an update rounds with.
struct RoundingStream {
  uint64_t seed = 0;    // of the run
  int64_t update = 0;   // AdamW's t
  int32_t block = 0;    // of the model
  int64_t element = 0;  // of the block: the first of the arrays
};

struct AdamWSmallMomentsArgs {
  AdamWArgs update;  // m and v are null, the part is kAll
  MomentType type;   // not kFloat32
  std::byte* m;
  std::byte* v;
  float* m_scales = nullptr;  // of kInt8Blocks
  float* v_scales = nullptr;
  RoundingStream stream;
};

absl::Status AdamWSmallMoments(const cpu::Context& context, const AdamWSmallMomentsArgs& args);

// The same with a given instruction set, for tests and benchmarks.
// REQUIRES: the machine has it (isa <= BestCpuIsa()).
absl::Status AdamWSmallMoments(const cpu::Context& context, const AdamWSmallMomentsArgs& args,
                               CpuIsa isa);

}  // namespace penstock
