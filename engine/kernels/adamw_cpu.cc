#include "engine/base/status.h"
#include "engine/kernels/adamw.h"
#include "engine/kernels/adamw_scalars.h"
#include "engine/kernels/adamw_update.h"
#include "engine/kernels/contract.h"
#include "engine/kernels/parallel.h"

namespace penstock {
namespace {

// Elements a task: a multiple of a line of every array, and small enough to spread.
constexpr int64_t kBlock = 64 * 1024;

template <UpdatePart part, typename Gradient>
void UpdateAll(const cpu::Context& context, const AdamWArgs& args, const Gradient* gradient,
               CpuIsa isa) {
  const adamw::Scalars scalars = adamw::ToScalars(args);
  ParallelBlocks(context, args.count, kBlock, [&](int64_t begin, int64_t end) {
    adamw::UpdateRange<part, Gradient>(isa, scalars,
                                       {args.hi + begin, args.lo + begin, args.m + begin,
                                        args.v + begin, gradient + begin, end - begin});
  });
}

template <typename Gradient>
void UpdatePartOf(const cpu::Context& context, const AdamWArgs& args, const Gradient* gradient,
                  CpuIsa isa) {
  switch (args.part) {
    case UpdatePart::kAll:
      return UpdateAll<UpdatePart::kAll>(context, args, gradient, isa);
    case UpdatePart::kWeights:
      return UpdateAll<UpdatePart::kWeights>(context, args, gradient, isa);
    case UpdatePart::kMoments:
      return UpdateAll<UpdatePart::kMoments>(context, args, gradient, isa);
  }
}

}  // namespace

absl::Status AdamW(const cpu::Context& context, const AdamWArgs& args) {
  return AdamW(context, args, BestCpuIsa());
}

absl::Status AdamW(const cpu::Context& context, const AdamWArgs& args, CpuIsa isa) {
  PENSTOCK_RETURN_IF_ERROR(adamw::CheckContract(args));
  PENSTOCK_RETURN_IF_ERROR(Require(isa <= BestCpuIsa(), "AdamW", "an instruction set it has",
                                   {{"isa", static_cast<int64_t>(isa)}}));
  if (args.gradient != nullptr) {
    UpdatePartOf(context, args, args.gradient, isa);
  } else {
    UpdatePartOf(context, args, args.gradient_bf16, isa);
  }
  return absl::OkStatus();
}

}  // namespace penstock
