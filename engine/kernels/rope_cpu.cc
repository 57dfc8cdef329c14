#include <cmath>

#include "engine/base/status.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/isa_dispatch.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/rope.h"

namespace penstock {
namespace {

struct RotateRows {
  PENSTOCK_ISA_BODY void Run(const RopeArgs<float>& args, int64_t begin, int64_t end) {
    const int64_t half = args.head_dim / 2;
    const float sign = args.direction == RopeDirection::kForward ? 1.0f : -1.0f;
    for (int64_t row = begin; row < end; ++row) {
      const float* cosines = args.table + args.positions[row] * args.head_dim;
      const float* sines = cosines + half;
      for (int64_t head = 0; head < args.heads; ++head) {
        float* first = args.x + row * args.stride + head * args.head_dim;
        float* second = first + half;
        for (int64_t i = 0; i < half; ++i) {
          const float a = first[i];
          const float b = second[i];
          const float sine = sign * sines[i];
          first[i] = a * cosines[i] - b * sine;
          second[i] = b * cosines[i] + a * sine;
        }
      }
    }
  }
};

}  // namespace

absl::Status Rope(const cpu::Context& context, const RopeArgs<float>& args) {
  PENSTOCK_RETURN_IF_ERROR(RequireSizes("Rope", {{"rows", args.rows},
                                                 {"heads", args.heads},
                                                 {"head_dim", args.head_dim},
                                                 {"stride", args.stride},
                                                 {"max_positions", args.max_positions}}));
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.head_dim % 2 == 0, "Rope", "an even head_dim", {{"head_dim", args.head_dim}}));
  PENSTOCK_RETURN_IF_ERROR(Require(
      args.rows == 0 || (args.x != nullptr && args.positions != nullptr && args.table != nullptr),
      "Rope", "arrays x, positions and table"));
  for (int64_t row = 0; row < args.rows; ++row) {
    const int64_t position = args.positions[row];
    PENSTOCK_RETURN_IF_ERROR(
        Require(position >= 0 && position < args.max_positions, "Rope",
                "every position in [0, max_positions)",
                {{"row", row}, {"position", position}, {"max_positions", args.max_positions}}));
  }
  const int64_t block = RowsPerBlock(args.heads * args.head_dim);
  ParallelBlocks(context, args.rows, block,
                 [&](int64_t begin, int64_t end) { RunForIsa<RotateRows>(args, begin, end); });
  return absl::OkStatus();
}

void FillRopeTable(std::span<const double> inverse_frequencies, int64_t positions, float* table) {
  const int64_t half = static_cast<int64_t>(inverse_frequencies.size());
  for (int64_t position = 0; position < positions; ++position) {
    float* cosines = table + position * 2 * half;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * inverse_frequencies[i];
      cosines[i] = static_cast<float>(std::cos(angle));
      cosines[half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace penstock
