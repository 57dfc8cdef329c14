// Simulate: when the ops of a program run, given how long each takes alone. The same order as an
// executor's: ops of a lane one after the other, each after those it names.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "engine/plan/contention.h"
#include "engine/plan/step_program.h"

namespace penstock {

struct SimulatedOp {
  double start = 0;  // seconds
  double end = 0;
};

struct Simulation {
  std::vector<SimulatedOp> timeline;  // by op
  double seconds = 0;                 // of the program
  std::array<double, kLaneCount> busy_seconds = {};
  // By lane: how long it was busy while the compute lane was not.
  std::array<double, kLaneCount> exposed_seconds = {};
};

// REQUIRES: one duration for each op; `after` names earlier ops.
Simulation Simulate(const StepProgram& program, std::span<const double> op_seconds,
                    const Contention& contention);

// The exposed seconds of any timeline of the program, measured ones too.
std::array<double, kLaneCount> ExposedSeconds(const StepProgram& program,
                                              std::span<const SimulatedOp> timeline);

}  // namespace penstock
