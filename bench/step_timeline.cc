#include "bench/step_timeline.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "engine/plan/machine_profile.h"

namespace penstock {
namespace {

// A time in which the compute lane did nothing.
struct Gap {
  double start, end;  // seconds
  std::string until;  // the compute op that ended it, or the end of the step
};

// The gaps of the last step, from its start to the end of its last op.
std::vector<Gap> ComputeGaps(const StepProgram& program, std::span<const SimulatedOp> timeline) {
  std::vector<Gap> gaps;
  double busy_until = 0, end = 0;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    end = std::max(end, timeline[i].end);
    if (program.ops[i].lane != Lane::kCompute) continue;
    if (timeline[i].start > busy_until) {
      gaps.push_back(
          {busy_until, timeline[i].start, OpText(program, OpId{static_cast<int32_t>(i)})});
    }
    busy_until = timeline[i].end;
  }
  if (end > busy_until) gaps.push_back({busy_until, end, "end of the step"});
  return gaps;
}

int64_t LinkBytes(const FetchWeights& op, const StepProgram&, const ModelLayout& layout) {
  return layout.blocks[Index(op.block)].size * 2;
}
int64_t LinkBytes(const StoreGradients& op, const StepProgram& program, const ModelLayout& layout) {
  return layout.blocks[Index(op.block)].size * GradientBytesPerElement(program.gradient_type);
}
int64_t LinkBytes(const StoreSaved& op, const StepProgram& program, const ModelLayout&) {
  return program.buffer(op.host).bytes;
}
int64_t LinkBytes(const FetchSaved& op, const StepProgram& program, const ModelLayout&) {
  return program.buffer(op.host).bytes;
}
int64_t LinkBytes(const FetchSums& op, const StepProgram&, const ModelLayout& layout) {
  return layout.blocks[Index(op.block)].size * 4;
}
int64_t LinkBytes(const StoreSums& op, const StepProgram&, const ModelLayout& layout) {
  return layout.blocks[Index(op.block)].size * 4;
}
int64_t LinkBytes(const FetchMoments& op, const StepProgram&, const ModelLayout& layout) {
  return layout.blocks[Index(op.block)].size * 8;
}
template <typename Op>
int64_t LinkBytes(const Op&, const StepProgram&, const ModelLayout&) {
  return 0;
}

// Of host memory, read and written. Parts have moments in fp32, which they read, and one writes.
double HostBytes(const UpdateHost& op, const ModelLayout& layout, MomentType moments) {
  const int64_t size = layout.blocks[Index(op.block)].size;
  const double all = kAdamwHostBytes * static_cast<double>(size);
  if (op.part != UpdatePart::kAll) return kAdamwPartBytesShare * all;
  return all - 2 * static_cast<double>(MomentBytes(MomentType::kFloat32, size) -
                                       MomentBytes(moments, size));
}

}  // namespace

std::vector<SimulatedOp> InSeconds(std::span<const OpTime> timeline) {
  std::vector<SimulatedOp> seconds;
  seconds.reserve(timeline.size());
  for (const OpTime& time : timeline) {
    seconds.push_back(
        {static_cast<double>(time.start_ns) * 1e-9, static_cast<double>(time.end_ns) * 1e-9});
  }
  return seconds;
}

nlohmann::json ByLane(const std::array<double, kLaneCount>& seconds) {
  nlohmann::json object;
  for (int lane = 0; lane < kLaneCount; ++lane) {
    object[LaneName(static_cast<Lane>(lane))] = seconds[lane];
  }
  return object;
}

nlohmann::json LongestGaps(const StepProgram& program, std::span<const SimulatedOp> timeline) {
  constexpr size_t kShown = 5;
  std::vector<Gap> gaps = ComputeGaps(program, timeline);
  std::sort(gaps.begin(), gaps.end(),
            [](const Gap& a, const Gap& b) { return a.end - a.start > b.end - b.start; });
  nlohmann::json shown = nlohmann::json::array();
  for (size_t i = 0; i < std::min(kShown, gaps.size()); ++i) {
    shown.push_back({{"seconds", gaps[i].end - gaps[i].start}, {"until", gaps[i].until}});
  }
  return shown;
}

nlohmann::json SecondsByOp(const StepProgram& program, std::span<const SimulatedOp> timeline) {
  std::map<std::string, double> seconds;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    // "%7 compute forward_block ..."
    const std::vector<std::string> words =
        absl::StrSplit(OpText(program, OpId{static_cast<int32_t>(i)}), ' ');
    seconds[words.at(2)] += timeline[i].end - timeline[i].start;
  }
  return seconds;
}

nlohmann::json LinkGigabytesPerSecond(const StepProgram& program, const ModelLayout& layout,
                                      std::span<const SimulatedOp> timeline) {
  std::array<double, kLaneCount> bytes = {}, seconds = {};
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const int lane = static_cast<int>(program.ops[i].lane);
    bytes[lane] += static_cast<double>(std::visit(
        [&](const auto& op) { return LinkBytes(op, program, layout); }, program.ops[i].body));
    seconds[lane] += timeline[i].end - timeline[i].start;
  }
  nlohmann::json rates;
  for (Lane lane : {Lane::kCopyIn, Lane::kCopyOut}) {
    const auto index = static_cast<int>(lane);
    rates[LaneName(lane)] = seconds[index] > 0 ? bytes[index] / seconds[index] * 1e-9 : 0.0;
  }
  return rates;
}

nlohmann::json HostGigabytesPerSecond(const StepProgram& program, const ModelLayout& layout,
                                      MomentType moments, std::span<const SimulatedOp> timeline) {
  std::map<std::string, double> bytes, seconds;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const auto* update = std::get_if<UpdateHost>(&program.ops[i].body);
    if (update == nullptr) continue;
    const char* part = UpdatePartName(update->part);
    bytes[part] += HostBytes(*update, layout, moments);
    seconds[part] += timeline[i].end - timeline[i].start;
  }
  nlohmann::json rates = nlohmann::json::object();
  for (const auto& [part, total] : seconds) {
    if (total > 0) rates[part] = bytes[part] / total * 1e-9;
  }
  return rates;
}

}  // namespace penstock
