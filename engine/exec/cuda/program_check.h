// What of a step program is particular to CUDA: which lane may run an op, and which bytes of a
// block are parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/layout.h"
#include "engine/plan/step_program.h"

namespace penstock {

// Copies may run on any stream; kernels share one context's workspace, so all of them are on the
// compute lane; the host lane has the clip scale and the host's updates. InvalidArgument with the
// op's text otherwise.
absl::Status CheckLanes(const StepProgram& program);

// Elements of a block that are parameters: neighbours count as one range, gaps are left out.
struct Range {
  int64_t begin, count;
};
std::vector<Range> ParameterRanges(const BlockLayout& block);

}  // namespace penstock
