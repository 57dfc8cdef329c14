#include "engine/kernels/adamw.h"

#include <cmath>

#include "engine/base/status.h"
#include "engine/kernels/adamw_update.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/parallel.h"

namespace penstock {
namespace {

// Elements a task: a multiple of a line of every array, and small enough to spread.
constexpr int64_t kBlock = 16 * 1024;

adamw::Scalars ToScalars(const AdamWArgs& args) {
  adamw::Scalars scalars{};
  scalars.gradient_scale = args.gradient_scale;
  scalars.keep = static_cast<float>(1.0 - args.learning_rate * args.weight_decay);
  const float lerp_weight = static_cast<float>(1.0 - args.beta1);
  scalars.m_base_is_gradient = lerp_weight >= 0.5f;
  scalars.m_weight = scalars.m_base_is_gradient ? lerp_weight - 1.0f : lerp_weight;
  scalars.beta2 = static_cast<float>(args.beta2);
  scalars.one_minus_beta2 = static_cast<float>(1.0 - args.beta2);
  scalars.minus_step_size = static_cast<float>(-(args.learning_rate / args.bias_correction1));
  scalars.sqrt_correction2 = static_cast<float>(std::sqrt(args.bias_correction2));
  scalars.epsilon = static_cast<float>(args.epsilon);
  return scalars;
}

void UpdateRange(CpuIsa isa, const adamw::Scalars& scalars, const adamw::Range& range) {
  switch (isa) {
    case CpuIsa::kAvx512:
      return adamw::UpdateAvx512(scalars, range);
    case CpuIsa::kAvx2:
      return adamw::UpdateAvx2(scalars, range);
    case CpuIsa::kPortable:
      return adamw::UpdatePortable(scalars, range);
  }
}

}  // namespace

absl::Status AdamW(const cpu::Context& context, const AdamWArgs& args) {
  return AdamW(context, args, BestCpuIsa());
}

absl::Status AdamW(const cpu::Context& context, const AdamWArgs& args, CpuIsa isa) {
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.count >= 0, "AdamW", "count >= 0", {{"count", args.count}}));
  PENSTOCK_RETURN_IF_ERROR(
      Require(args.count == 0 || (args.hi != nullptr && args.lo != nullptr && args.m != nullptr &&
                                  args.v != nullptr && args.gradient != nullptr),
              "AdamW", "arrays hi, lo, m, v and gradient"));
  PENSTOCK_RETURN_IF_ERROR(Require(args.bias_correction1 > 0 && args.bias_correction2 > 0, "AdamW",
                                   "bias corrections > 0 (updates are counted from 1)"));
  PENSTOCK_RETURN_IF_ERROR(Require(isa <= BestCpuIsa(), "AdamW", "an instruction set it has",
                                   {{"isa", static_cast<int64_t>(isa)}}));
  const adamw::Scalars scalars = ToScalars(args);
  ParallelBlocks(context, args.count, kBlock, [&](int64_t begin, int64_t end) {
    UpdateRange(isa, scalars,
                {args.hi + begin, args.lo + begin, args.m + begin, args.v + begin,
                 args.gradient + begin, end - begin});
  });
  return absl::OkStatus();
}

}  // namespace penstock
