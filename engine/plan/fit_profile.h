// From measured timelines to rates: the profile under which OpSeconds() gives what was measured.
//
// The compute lane: a duration is linear in the reciprocals of the rates, so what each rate counts
// of an op is what OpSeconds() says when that rate is 1 and all others cost nothing. The
// reciprocals are then a least-squares fit over all ops, none negative, each op by its relative
// error. A rate that no op tells apart from others stays near what it was.
//
// Copies: an op's bytes are its rate alone over the time that it ran alone, and its rate beside a
// copy in the other direction over the time that one ran: least squares again, over both.
// AdamW: the rate of the ops beside which nothing was copied; and host memory's, of the others,
// from their own bytes and those that were copied meanwhile.
#pragma once

#include <span>
#include <vector>

#include "engine/model/layout.h"
#include "engine/plan/machine_profile.h"
#include "engine/plan/op_cost.h"
#include "engine/plan/simulate.h"
#include "engine/plan/step_program.h"

namespace penstock {

// One program that was run, with the measured times of its ops.
struct MeasuredProgram {
  const StepProgram& program;
  const ModelSpec& spec;
  const ModelLayout& layout;
  CostInput cost;
  std::vector<SimulatedOp> timeline;  // by op
};

// `prior`: what is known of such a machine. Storage rates are taken over from it.
MachineProfile FitProfile(std::span<const MeasuredProgram> runs, const MachineProfile& prior);

}  // namespace penstock
