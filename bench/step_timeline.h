// What the timeline of a step says: how long lanes were busy, and what the compute lane waited for.
#pragma once

#include <array>
#include <span>

#include "engine/exec/executor.h"
#include "engine/model/layout.h"
#include "engine/plan/step_program.h"
#include "nlohmann/json.hpp"

namespace penstock {

nlohmann::json ByLane(const std::array<double, kLaneCount>& seconds);

// The longest gaps of the compute lane, each with the op that ended it.
nlohmann::json LongestGaps(const StepProgram& program, std::span<const OpTime> timeline);

// Seconds by kind of op.
nlohmann::json SecondsByOp(const StepProgram& program, std::span<const OpTime> timeline);

// Of the two copy lanes: bytes moved over the seconds the lane was busy.
nlohmann::json LinkGigabytesPerSecond(const StepProgram& program, const ModelLayout& layout,
                                      std::span<const OpTime> timeline);

}  // namespace penstock
