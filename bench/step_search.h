// The planner's choice for a step of the benchmark, as a job would have it.
#pragma once

#include "absl/status/statusor.h"
#include "bench/step_flags.h"
#include "engine/plan/search.h"

namespace penstock {

// What is left to a job's plan: on the device, and on the host with the host store.
struct Room {
  int64_t device_bytes = 0, host_bytes = 0;
};

struct SearchedStep {
  const ModelSpec& spec;
  const ModelLayout& layout;
  ProgramShape shape;   // its budget, if it has one, is all of the device that may be taken
  const Policy& asked;  // chunk rows, slots, gradient type, and whether updates go with backward
  MachineProfile machine;
  Room room;
};

// As ChoosePolicy.
absl::StatusOr<PolicyCandidate> SearchPolicy(const StepFlags& flags, const SearchedStep& step);

}  // namespace penstock
