#include <algorithm>
#include <cstdint>
#include <span>

#include "absl/container/inlined_vector.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/base/units.h"
#include "engine/kernels/adamw.h"
#include "engine/kernels/adamw_scalars.h"
#include "engine/kernels/adamw_update.h"
#include "engine/kernels/contract.h"

namespace penstock {
namespace {

// Elements a task: a multiple of a line of every array. Large ones took 2 to 9% less time on 16
// cores of a Sapphire Rapids; small ones spread where there is little to do.
constexpr int64_t kLargeTask = 64 * 1024, kSmallTask = 16 * 1024;
constexpr int64_t kManyElements = 8 * 1024 * 1024;

// One of several updates, and the tasks that it is cut into.
struct Piece {
  const AdamWArgs* args;
  adamw::Scalars scalars;
  int64_t first_task;
};
// What a layer has of parameters; more of them cost an allocation.
using Pieces = absl::InlinedVector<Piece, 16>;

template <UpdatePart part, typename Gradient>
void UpdateRangeOf(const Piece& piece, const Gradient* gradient, int64_t begin, int64_t end,
                   CpuIsa isa) {
  const AdamWArgs& args = *piece.args;
  adamw::UpdateRange<part, Gradient>(isa, piece.scalars,
                                     {args.hi + begin, args.lo + begin, args.m + begin,
                                      args.v + begin, gradient + begin, end - begin});
}

template <UpdatePart part>
void UpdateElements(const Piece& piece, int64_t begin, int64_t end, CpuIsa isa) {
  if (piece.args->gradient != nullptr) {
    UpdateRangeOf<part>(piece, piece.args->gradient, begin, end, isa);
  } else {
    UpdateRangeOf<part>(piece, piece.args->gradient_bf16, begin, end, isa);
  }
}

void UpdateElements(const Piece& piece, int64_t begin, int64_t end, CpuIsa isa) {
  switch (piece.args->part) {
    case UpdatePart::kAll:
      return UpdateElements<UpdatePart::kAll>(piece, begin, end, isa);
    case UpdatePart::kWeights:
      return UpdateElements<UpdatePart::kWeights>(piece, begin, end, isa);
    case UpdatePart::kMoments:
      return UpdateElements<UpdatePart::kMoments>(piece, begin, end, isa);
  }
}

absl::Status Update(const cpu::Context& context, std::span<const AdamWArgs> updates, CpuIsa isa) {
  int64_t elements = 0;
  for (const AdamWArgs& args : updates) {
    PENSTOCK_RETURN_IF_ERROR(adamw::CheckContract(args));
    elements += args.count;
  }
  const int64_t block = elements >= kManyElements ? kLargeTask : kSmallTask;
  Pieces pieces;
  int64_t tasks = 0;
  for (const AdamWArgs& args : updates) {
    if (args.count == 0) continue;
    pieces.push_back({&args, adamw::ToScalars(args), tasks});
    tasks += CeilDiv(args.count, block);
  }
  context.pool->ParallelFor(tasks, [&](int64_t task, int /*worker*/) {
    const auto after = std::upper_bound(
        pieces.begin(), pieces.end(), task,
        [](int64_t value, const Piece& piece) { return value < piece.first_task; });
    const Piece& piece = *(after - 1);
    const int64_t begin = (task - piece.first_task) * block;
    UpdateElements(piece, begin, std::min(begin + block, piece.args->count), isa);
  });
  return absl::OkStatus();
}

}  // namespace

absl::Status AdamW(const cpu::Context& context, std::span<const AdamWArgs> updates) {
  return Update(context, updates, BestCpuIsa());
}

absl::Status AdamW(const cpu::Context& context, const AdamWArgs& args) {
  return AdamW(context, args, BestCpuIsa());
}

absl::Status AdamW(const cpu::Context& context, const AdamWArgs& args, CpuIsa isa) {
  PENSTOCK_RETURN_IF_ERROR(Require(isa <= BestCpuIsa(), "AdamW", "an instruction set it has",
                                   {{"isa", static_cast<int64_t>(isa)}}));
  return Update(context, std::span(&args, 1), isa);
}

}  // namespace penstock
