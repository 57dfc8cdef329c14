#include "engine/plan/simulate.h"

#include <algorithm>
#include <limits>

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

namespace {

// The lanes at one moment: each runs the first of its ops that has not ended, once the ops that it
// names have. Time goes on from one end to the next; in between, speeds stay as they are.
class Lanes {
 public:
  Lanes(const StepProgram& program, std::span<const double> op_seconds,
        const Contention& contention, std::vector<SimulatedOp>& timeline)
      : program_(program), contention_(contention), seconds_(op_seconds), timeline_(timeline) {
    for (size_t i = 0; i < program.ops.size(); ++i) {
      lanes_[static_cast<size_t>(program.ops[i].lane)].ops.push_back(static_cast<int32_t>(i));
    }
    ended_.resize(program.ops.size());
  }

  // When the last op has ended.
  double Run() {
    while (StartOps()) Advance();
    return now_;
  }

 private:
  struct LaneState {
    std::vector<int32_t> ops;
    size_t next = 0;       // of `ops`
    bool running = false;  // ops[next]
    double left = 0;       // of it: seconds that it would take alone
  };

  bool MayStart(int32_t op) const {
    const std::vector<OpId>& after = program_.ops[op].after;
    return std::all_of(after.begin(), after.end(), [&](OpId id) { return ended_[Index(id)]; });
  }

  // False if no lane runs: all ops have ended.
  bool StartOps() {
    running_ = 0;
    for (size_t i = 0; i < kLaneCount; ++i) {
      LaneState& lane = lanes_[i];
      if (!lane.running && lane.next < lane.ops.size() && MayStart(lane.ops[lane.next])) {
        lane.running = true;
        lane.left = seconds_[lane.ops[lane.next]];
        timeline_[lane.ops[lane.next]].start = now_;
      }
      if (lane.running) running_ |= 1U << i;
    }
    return running_ != 0;
  }

  // To the next end of an op.
  void Advance() {
    const Contention::Speeds& speeds = contention_.speeds[running_];
    double step = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < kLaneCount; ++i) {
      if (lanes_[i].running) step = std::min(step, lanes_[i].left / speeds[i]);
    }
    now_ += step;
    for (size_t i = 0; i < kLaneCount; ++i) {
      LaneState& lane = lanes_[i];
      if (!lane.running) continue;
      // The one that gave the step ends, and what rounding leaves of another that ends with it. An
      // op of no duration that is a number ends too: the loop must.
      constexpr double kRounding = 1e-12;
      if (!(lane.left / speeds[i] > step * (1 + kRounding))) {
        lane.running = false;
        ended_[lane.ops[lane.next]] = true;
        timeline_[lane.ops[lane.next++]].end = now_;
      } else {
        lane.left -= step * speeds[i];
      }
    }
  }

  const StepProgram& program_;
  const Contention& contention_;
  const std::span<const double> seconds_;
  std::vector<SimulatedOp>& timeline_;
  std::array<LaneState, kLaneCount> lanes_;
  std::vector<bool> ended_;
  unsigned running_ = 0;
  double now_ = 0;
};

}  // namespace

Simulation Simulate(const StepProgram& program, std::span<const double> op_seconds,
                    const Contention& contention) {
  Simulation simulation;
  simulation.timeline.resize(program.ops.size());
  simulation.seconds = Lanes(program, op_seconds, contention, simulation.timeline).Run();
  for (size_t i = 0; i < program.ops.size(); ++i) {
    simulation.busy_seconds[static_cast<size_t>(program.ops[i].lane)] +=
        simulation.timeline[i].end - simulation.timeline[i].start;
  }
  simulation.exposed_seconds = ExposedSeconds(program, simulation.timeline);
  return simulation;
}

}  // namespace penstock
