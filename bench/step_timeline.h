// What the timeline of a step, measured or predicted, says: how long lanes were busy, and what the
// compute lane waited for.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "engine/exec/executor.h"
#include "engine/model/layout.h"
#include "engine/plan/moment_type.h"
#include "engine/plan/simulate.h"
#include "engine/plan/step_program.h"
#include "nlohmann/json.hpp"

namespace penstock {

std::vector<SimulatedOp> InSeconds(std::span<const OpTime> timeline);

nlohmann::json ByLane(const std::array<double, kLaneCount>& seconds);

// The longest gaps of the compute lane, each with the op that ended it.
nlohmann::json LongestGaps(const StepProgram& program, std::span<const SimulatedOp> timeline);

// Seconds by kind of op.
nlohmann::json SecondsByOp(const StepProgram& program, std::span<const SimulatedOp> timeline);

// Of the two copy lanes: bytes moved over the seconds the lane was busy.
nlohmann::json LinkGigabytesPerSecond(const StepProgram& program, const ModelLayout& layout,
                                      std::span<const SimulatedOp> timeline);

// By part of the host's updates: bytes of host memory over the seconds they took.
nlohmann::json HostGigabytesPerSecond(const StepProgram& program, const ModelLayout& layout,
                                      MomentType moments, std::span<const SimulatedOp> timeline);

}  // namespace penstock
