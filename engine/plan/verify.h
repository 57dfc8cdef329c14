// Verify: the proof that a program may run.
#pragma once

#include "absl/status/status.h"
#include "engine/plan/step_program.h"

namespace penstock {

// Ok only if
//  1. every id is in range and `after` names earlier ops;
//  2. every buffer lies inside its arena (ResourceExhausted otherwise);
//  3. any two ops that touch the same bytes, one of them writing, are ordered by lanes and
//     `after`, so that every run of the program gives the same bits;
//  4. every read finds what it expects: the weights of the right block, the activation of the
//     right micro-batch, complete gradients, a gradient plane and a clip scale of the step whose
//     updates it makes; at the end the buffers hold what the program says that it leaves;
//  5. no block's weights are fetched or used both before and after its update;
//  6. where a block's weights are updated first, its moments are later, with the same gradients.
// Otherwise InvalidArgument naming the first op at fault by its text and the op it collides
// with. Linear in the number of ops.
absl::Status Verify(const StepProgram& program);

}  // namespace penstock
