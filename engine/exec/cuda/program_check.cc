#include "engine/exec/cuda/program_check.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock {
namespace {

enum class Kind { kCopy, kKernel, kHost };

Kind KindOf(const FetchWeights&) { return Kind::kCopy; }
Kind KindOf(const StoreSaved&) { return Kind::kCopy; }
Kind KindOf(const FetchSaved&) { return Kind::kCopy; }
Kind KindOf(const StoreGradients&) { return Kind::kCopy; }
Kind KindOf(const StoreSums&) { return Kind::kCopy; }
Kind KindOf(const FetchSums&) { return Kind::kCopy; }
Kind KindOf(const FetchMaster&) { return Kind::kCopy; }
Kind KindOf(const StoreMaster&) { return Kind::kCopy; }
Kind KindOf(const FetchMoments&) { return Kind::kCopy; }
Kind KindOf(const StoreMoments&) { return Kind::kCopy; }
Kind KindOf(const ClipScale&) { return Kind::kHost; }
Kind KindOf(const DecideUnclipped&) { return Kind::kHost; }
Kind KindOf(const UpdateHost&) { return Kind::kHost; }
template <typename Op>
Kind KindOf(const Op&) {
  return Kind::kKernel;
}

bool RunsOnItsLane(const Op& op) {
  switch (std::visit([](const auto& body) { return KindOf(body); }, op.body)) {
    case Kind::kCopy:
      return op.lane != Lane::kHost;
    case Kind::kKernel:
      return op.lane == Lane::kCompute;
    case Kind::kHost:
      return op.lane == Lane::kHost;
  }
  return false;
}

}  // namespace

absl::Status CheckLanes(const StepProgram& program) {
  for (size_t i = 0; i < program.ops.size(); ++i) {
    if (RunsOnItsLane(program.ops[i])) continue;
    return Error(absl::StatusCode::kInvalidArgument, reason::kInternal,
                 absl::StrCat("on CUDA this op cannot run on lane ", LaneName(program.ops[i].lane),
                              ": ", OpText(program, OpId{static_cast<int32_t>(i)})));
  }
  return absl::OkStatus();
}

std::vector<Range> ParameterRanges(const BlockLayout& block) {
  std::vector<Range> ranges;
  for (const Parameter& parameter : block.parameters) {
    if (!ranges.empty() && ranges.back().begin + ranges.back().count == parameter.offset) {
      ranges.back().count += parameter.size;
    } else {
      ranges.push_back({parameter.offset, parameter.size});
    }
  }
  return ranges;
}

}  // namespace penstock
