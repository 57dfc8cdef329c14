// What lanes leave each other: how fast an op goes, of what it reaches alone, while other lanes
// run.
//
// Copies in the two directions share the link and the copy engines, and copies are slowed down by
// AdamW, which wants the same host memory. AdamW gets what the copies leave of that memory's
// bandwidth, no more than it uses alone.
#pragma once

#include <array>

#include "engine/plan/machine_profile.h"
#include "engine/plan/step_program.h"

namespace penstock {

struct Contention {
  using Speeds = std::array<double, kLaneCount>;
  // By the set of lanes that run an op, lane i as bit i.
  std::array<Speeds, 1 << kLaneCount> speeds;

  static Contention None();
};

Contention ContentionOf(const MachineProfile& machine);

inline constexpr unsigned LaneBit(Lane lane) { return 1U << static_cast<unsigned>(lane); }

}  // namespace penstock
