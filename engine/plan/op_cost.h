// How long the ops of a program take on a machine: operations and bytes, counted, over its rates.
//
// With T tokens, N elements of a layer's matrices, context c (the mean length of a document):
//   matmul    2 T N forward, 4 T N backward, and what the save level recomputes; and each product's
//             operands and result once, by which narrow products are slower than large ones
//   attention 2 T c q forward (causal: half of the products), 2.5 times that backward; rates are
//             those of cuDNN's kernels, of which heads too wide for them reach a share
// and the bytes of memory-bound kernels and of gradient sums, which are read and written as fp32.
// An op is as fast as it is alone; Simulate() slows those that contend.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/layout.h"
#include "engine/plan/machine_profile.h"
#include "engine/plan/step_program.h"

namespace penstock {

// The widest heads of which a GPU's attention rates speak (kernels/attention.h has why), and what
// wider ones reach of them, through our own kernels: with heads of 256, forward and backward, those
// gave 142 and 77 TFLOP/s in documents of 1,024 on an H200, and 175 and 87 in documents of 4,096
// (penstock_attention_bench 16 8 256 16384); heads of 128 have 392 and 262, and 554 and 335.
inline constexpr int64_t kWidestFusedHead = 128;
inline constexpr double kWideHeadShare = 0.3;

struct CostInput {
  int64_t tokens_per_micro_batch = 0;
  double mean_document_tokens = 0;
  int64_t head_chunk_rows = 0;
  int64_t element_bytes = 2;  // 2 on a GPU
  MomentType moment_type = MomentType::kFloat32;
  // How many micro-batches of the step each of the program stands for: a search makes a few do
  // for many.
  double micro_batches_per_op = 1;
  // Of the step's micro-batches, those that the program has and the ones they stand for: so much of
  // the moments that are updated later falls to it, as the others give time for the rest.
  double share_of_step = 1;
};

// Seconds of every op of the program, each alone.
std::vector<double> OpSeconds(const StepProgram& program, const ModelSpec& spec,
                              const ModelLayout& layout, const CostInput& input,
                              const MachineProfile& machine);

}  // namespace penstock
