#include "engine/plan/simulate.h"

#include <algorithm>

namespace penstock {

std::array<double, kLaneCount> ExposedSeconds(const StepProgram& program,
                                              std::span<const SimulatedOp> timeline) {
  std::array<double, kLaneCount> exposed = {};
  // The compute lane's ops stand in the order in which they run: between them lie its gaps.
  std::vector<SimulatedOp> gaps;
  double busy_until = 0, end = 0;
  for (size_t i = 0; i < timeline.size(); ++i) {
    end = std::max(end, timeline[i].end);
    if (program.ops[i].lane != Lane::kCompute) continue;
    if (timeline[i].start > busy_until) gaps.push_back({busy_until, timeline[i].start});
    busy_until = std::max(busy_until, timeline[i].end);
  }
  if (end > busy_until) gaps.push_back({busy_until, end});
  for (size_t i = 0; i < timeline.size(); ++i) {
    // Gaps are sorted: the first that ends after the op starts, and those after it.
    auto gap = std::upper_bound(gaps.begin(), gaps.end(), timeline[i].start,
                                [](double start, const SimulatedOp& at) { return start < at.end; });
    for (; gap != gaps.end() && gap->start < timeline[i].end; ++gap) {
      exposed[static_cast<int>(program.ops[i].lane)] +=
          std::min(gap->end, timeline[i].end) - std::max(gap->start, timeline[i].start);
    }
  }
  for (const SimulatedOp& gap : gaps) {
    exposed[static_cast<int>(Lane::kCompute)] += gap.end - gap.start;
  }
  return exposed;
}

Simulation Simulate(const StepProgram& program, std::span<const double> op_seconds) {
  Simulation simulation;
  simulation.timeline.resize(program.ops.size());
  std::array<double, kLaneCount> free_at = {};
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const auto lane = static_cast<int>(op.lane);
    double start = free_at[lane];
    for (OpId after : op.after) start = std::max(start, simulation.timeline[Index(after)].end);
    simulation.timeline[i] = {start, start + op_seconds[i]};
    free_at[lane] = start + op_seconds[i];
    simulation.busy_seconds[lane] += op_seconds[i];
    simulation.seconds = std::max(simulation.seconds, free_at[lane]);
  }
  simulation.exposed_seconds = ExposedSeconds(program, simulation.timeline);
  return simulation;
}

}  // namespace penstock
