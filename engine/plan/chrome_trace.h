// A timeline of a step for trace viewers (Perfetto, chrome://tracing): each lane is a thread.
#pragma once

#include <span>
#include <string>

#include "engine/plan/simulate.h"
#include "engine/plan/step_program.h"

namespace penstock {

// JSON of the Trace Event Format. `title` names the process: predicted and measured timelines of
// one program can be laid over each other. REQUIRES: one entry an op; `title` needs no escapes.
std::string ChromeTrace(const StepProgram& program, std::span<const SimulatedOp> timeline,
                        const std::string& title);

}  // namespace penstock
