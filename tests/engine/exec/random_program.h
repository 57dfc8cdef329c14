// Random programs that mean the same as a given one: ops in another order, on other lanes, in
// other buffers. All of them are valid, and all must give the same bits.
#pragma once

#include <cstdint>

#include "engine/plan/step_program.h"

namespace penstock {

StepProgram Scramble(StepProgram program, uint64_t seed);

}  // namespace penstock
